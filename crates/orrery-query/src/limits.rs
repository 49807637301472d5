//! Limits on the resources of a query.
//!
//! The service's documented limits come first; the others bound recursion and memory for any query text.

/// UTF-16 code units of query text.
pub const TEXT_UNITS_MAX: usize = 512 * 1024;
/// JOIN clauses in one query, including subqueries.
pub const JOINS_MAX: usize = 10;
/// Calls of user-defined functions in one query text.
pub const UDF_CALLS_MAX: usize = 10;
/// Search terms of one FullTextScore.
pub const SEARCH_TERMS_MAX: usize = 5;
/// Arguments of one RRF.
pub const FUSED_SCORES_MAX: usize = 100;
/// Aggregates in a query whose results clients merge.
pub const MERGED_AGGREGATES_MAX: usize = 21;
/// Members of one IN list.
pub const IN_MEMBERS_MAX: usize = 16_000;
/// Operands of AND and OR in one query. The service documents 500 of each and accepts far more: to read many items the
/// Python client sends a thousand of `(c.id = @i AND c.a = @a AND c.b = @b AND c.c = @c) OR …`.
pub const LOGICAL_TERMS_MAX: usize = 8_000;
/// Largest TOP, OFFSET or LIMIT count.
pub const COUNT_MAX: u64 = u32::MAX as u64;
/// Cells (scalars and containers) that grouping, DISTINCT or list aggregates may hold.
pub const STATE_CELLS_MAX: usize = 500_000;
/// Rows that a sort without TOP, LIMIT or page bound may hold.
pub const SORT_ROWS_MAX: usize = 500_000;
/// Levels of the expression tree. Chains of AND and OR count as one level.
pub const EXPRESSION_DEPTH_MAX: usize = 128;
/// The parser's maximum recursion depth. Parentheses at the left edge of an expression do not count.
pub const NESTING_MAX: usize = 200;
/// Rows that one subquery may produce for one document.
pub const SUBQUERY_ROWS_MAX: usize = 500_000;
/// Bytes of rows that such a sort may hold.
pub const SORT_BYTES_MAX: usize = 256 << 20;
/// Bytes of sorted rows that are kept for one page; at least one row always is.
pub const SORTED_PAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of one string, array or object that an expression builds.
pub const VALUE_BYTES_MAX: usize = 32 << 20;
/// Expressions of one GROUP BY or ORDER BY clause.
pub const KEYS_MAX: usize = 100;
/// Different aggregates of one SELECT.
pub const AGGREGATES_MAX: usize = 500;
/// Errors reported for one text.
pub const ERRORS_MAX: usize = 50;
/// The maximum number of steps for matching one LIKE pattern.
pub const LIKE_STEPS_MAX: usize = 50_000_000;

/// Whether a query text is longer than it may be.
pub(crate) fn is_too_long(text: &str) -> bool {
    // A code unit takes at least one byte.
    text.len() > TEXT_UNITS_MAX && text.encode_utf16().count() > TEXT_UNITS_MAX
}
