-- From version 4 to version 5.

-- The events that are written from now on leave out the terms of their orders. Those that are there stay whole.

-- References grow with the time now and differ across all stores, or nearly so: the index needs no store.
DROP INDEX orders_by_reference;
CREATE INDEX        orders_by_reference ON orders (reference);
