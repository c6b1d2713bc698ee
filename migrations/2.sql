-- Version 2: history and endpoints hold codes, which the pages put into words, instead of English sentences.

ALTER TABLE orders RENAME COLUMN parts TO components;
UPDATE orders SET components = replace(components, '"held":', '"reserved":');

ALTER TABLE order_history ADD COLUMN note TEXT NOT NULL DEFAULT '{}';
UPDATE order_history SET note = CASE
	WHEN reason = 'created' THEN json_object('code', 'created')
	WHEN reason = 'seen to' THEN json_object('code', 'resolved')
	WHEN reason = 'in the dashboard' THEN json_object('code', 'in_dashboard')
	WHEN reason = 'by command' THEN json_object('code', 'by_command')
	WHEN reason = 'not paid in time' THEN json_object('code', 'not_paid_in_time')
	WHEN reason LIKE 'says on the pay page%' THEN json_object('code', 'buyer_claims')
	WHEN reason LIKE 'paid: %, attempt %' THEN json_object('code', 'paid',
		'provider', substr(reason, 7, instr(reason, ', attempt ') - 7),
		'attempt', CAST(substr(reason, instr(reason, ', attempt ') + 10) AS INTEGER))
	ELSE json_object('code', 'text', 'text', reason) END;
ALTER TABLE order_history DROP COLUMN reason;

UPDATE endpoints SET off_reason = CASE off_reason
	WHEN '' THEN '' WHEN 'it answered 410 Gone' THEN 'gone' ELSE 'owner' END;
