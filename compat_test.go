//go:build cgo

package main

func collect[T any](q querier, fields func(*T) []any, query string, args ...any) ([]T, error) {
	return queryAll(q, func(r row) (v T, err error) { err = r.Scan(fields(&v)...); return v, err }, query, args...)
}

func one[T any](q querier, fields func(*T) []any, query string, args ...any) (v T, err error) {
	err = notFound(q.QueryRow(query, args...).Scan(fields(&v)...))
	return v, err
}

func column[T any](v *T) []any { return []any{v} }
