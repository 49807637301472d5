//! Tokens to tree: the clauses of a query. Expressions are in `expression`.
//!
//! A recursive descent over the clauses with operator precedence below. Recursion is counted: text nested deeper than
//! [`limits::NESTING_MAX`] and trees deeper than [`limits::EXPRESSION_DEPTH_MAX`] are rejected, so no text can exhaust
//! the stack, here or in later tree walks.

mod expression;

use orrery_model::Number;

use crate::ast::{
    Collection, Count, CountValue, Direction, Expr, ExprKind, From, Name, OffsetLimit, OrderBy, OrderItem,
    Query, Select, SelectItem, Selection, Source, Span, Step,
};
use crate::error::{Code, Location, QueryError};
use crate::lexer::{self, ExactWord, Keyword, Symbol, Token, TokenKind};
use crate::limits;

/// Boxed, because errors are rare and results travel through deep recursion.
type Parsed<T> = Result<T, Box<QueryError>>;

/// Parses a query text. The tree is well formed but not yet [checked](crate::check).
pub fn parse(text: &str) -> Result<Query, QueryError> {
    let mut parser = Parser::new(text)?;
    let query = parser.parse_whole(Parser::query).map_err(|error| *error)?;
    Ok(query)
}

/// Parses the condition of a patch: `FROM c WHERE …`, with an optional FROM clause.
pub fn parse_condition(text: &str) -> Result<Query, QueryError> {
    let mut parser = Parser::new(text)?;
    parser.parse_whole(Parser::condition).map_err(|error| *error)
}

/// Where a span of bytes lies in UTF-16 code units, as clients count.
pub fn location(text: &str, span: Span) -> Location {
    let units = |part: &str| u32::try_from(part.encode_utf16().count()).unwrap_or(u32::MAX);
    let start = units(text.get(..span.start as usize).unwrap_or(text));
    Location { start, end: start + units(span.of(text)) }
}

const QUOTED_CHARS_MAX: usize = 127;

const TOO_COMPLEX: &str = "The query is too complex to be processed. To resolve this issue, please consider breaking the query into multiple smaller queries, simplifying the complex expression, and/or using Computed Properties.";

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    at: usize,
    /// The current recursion depth.
    nesting: usize,
    logical_terms: usize,
}

/// A parsed part, the height of its tree, and all the text it takes: with its parentheses, which are not part of
/// the expression's own span.
struct Node<T> {
    part: T,
    depth: usize,
    span: Span,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Self, QueryError> {
        if limits::is_too_long(text) {
            let whole = Span { start: 0, end: u32::try_from(text.len()).unwrap_or(u32::MAX) };
            let place = Some(location(text, whole));
            return Err(QueryError::new(
                Code::Sc(3020),
                place,
                format!(
                    "The SQL query text exceeded the maximum limit of {} characters.",
                    limits::TEXT_UNITS_MAX
                ),
            ));
        }
        Ok(Self { text, tokens: lexer::tokens(text), at: 0, nesting: 0, logical_terms: 0 })
    }

    fn parse_whole(&mut self, part: fn(&mut Self) -> Parsed<Node<Query>>) -> Parsed<Query> {
        let node = part(self).map_err(|mut error| {
            // Raised where the token is not known. The current one is where the text became too deep.
            if error.code == Code::Sc(1030) {
                error.location = Some(location(self.text, self.token().span));
            }
            error
        })?;
        if self.kind() != TokenKind::End {
            return Err(self.unexpected());
        }
        Ok(node.part)
    }

    fn token(&self) -> Token {
        // The last token is End and is never passed.
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> TokenKind {
        self.token().kind
    }

    fn token_after(&self, ahead: usize) -> Token {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn kind_after(&self, ahead: usize) -> TokenKind {
        self.token_after(ahead).kind
    }

    fn advance(&mut self) -> Span {
        let span = self.token().span;
        self.at += 1;
        span
    }

    /// The end of what was read so far.
    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1).min(self.tokens.len() - 1)].span
    }

    fn text_of(&self, span: Span) -> &'t str {
        span.of(self.text)
    }

    fn at_keyword(&self, keyword: Keyword) -> bool {
        self.kind() == TokenKind::Keyword(keyword)
    }

    fn at_symbol(&self, symbol: Symbol) -> bool {
        self.kind() == TokenKind::Symbol(symbol)
    }

    fn take_keyword(&mut self, keyword: Keyword) -> bool {
        let found = self.at_keyword(keyword);
        if found {
            self.at += 1;
        }
        found
    }

    fn take_symbol(&mut self, symbol: Symbol) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect_keyword(&mut self, keyword: Keyword) -> Parsed<()> {
        if self.take_keyword(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_symbol(&mut self, symbol: Symbol) -> Parsed<()> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// The error for the current token.
    #[cold]
    #[expect(clippy::unnecessary_box_returns, reason = "errors travel boxed")]
    fn unexpected(&self) -> Box<QueryError> {
        let token = self.token();
        let location = Some(location(self.text, token.span));
        let near = self.text_of(token.span);
        // Messages quote no more than this of a token.
        let near = near.char_indices().nth(QUOTED_CHARS_MAX).map_or(near, |(end, _)| &near[..end]);
        Box::new(match token.kind {
            TokenKind::End => {
                QueryError::new(Code::Sc(1002), location, "Syntax error, unexpected end-of-file.")
            }
            TokenKind::Invalid => {
                QueryError::new(Code::Sc(1010), location, format!("Syntax error, invalid token '{near}'."))
            }
            TokenKind::InvalidNumber => QueryError::new(
                Code::Sc(1011),
                location,
                format!("Syntax error, invalid numeric value token '{near}'."),
            ),
            TokenKind::InvalidString => QueryError::new(
                Code::Sc(1012),
                location,
                format!("Syntax error, invalid string literal token '{near}'."),
            ),
            _ => QueryError::new(
                Code::Sc(1001),
                location,
                format!("Syntax error, incorrect syntax near '{near}'."),
            ),
        })
    }

    /// The text is nested too deeply.
    #[cold]
    #[expect(clippy::unnecessary_box_returns, reason = "errors travel boxed")]
    fn too_deep() -> Box<QueryError> {
        Box::new(QueryError::new(Code::Sc(1030), None, TOO_COMPLEX))
    }

    /// Enforces a limit on a counted construct.
    fn bound(count: usize, limit: usize, what: &str) -> Parsed<()> {
        if count <= limit {
            return Ok(());
        }
        Err(Box::new(QueryError::text(format!(
            "The SQL query exceeded the maximum number of {what}. The allowed limit is {limit}."
        ))))
    }

    /// Enters one level of recursion; the caller leaves it by [`Self::leave`].
    fn enter(&mut self) -> Parsed<()> {
        self.nesting += 1;
        if self.nesting > limits::NESTING_MAX { Err(Self::too_deep()) } else { Ok(()) }
    }

    fn leave(&mut self) {
        self.nesting -= 1;
    }

    fn node(kind: ExprKind, span: Span, depth: usize) -> Parsed<Node<Expr>> {
        if depth > limits::EXPRESSION_DEPTH_MAX {
            // Dropping the tree recurses too, but only as deep as it was allowed to grow.
            return Err(Self::too_deep());
        }
        Ok(Node { part: Expr::new(kind, span), depth, span })
    }

    fn query(&mut self) -> Parsed<Node<Query>> {
        self.enter()?;
        // A query takes several frames: it counts for as many levels.
        self.nesting += expression::SUBQUERY_HEIGHT;
        let start = self.token().span;
        if !self.take_keyword(Keyword::Select) {
            return Err(self.unexpected());
        }
        let mut depth = 0;
        let select = self.select(start, &mut depth)?;
        let query = self.clauses(select, start, &mut depth)?;
        self.nesting -= expression::SUBQUERY_HEIGHT;
        self.leave();
        let span = query.span;
        Ok(Node { part: query, depth, span })
    }

    fn condition(&mut self) -> Parsed<Node<Query>> {
        let start = self.token().span;
        if !self.at_keyword(Keyword::From) && !self.at_keyword(Keyword::Where) {
            return Err(self.unexpected());
        }
        let top_span = Span::default();
        // A condition has no SELECT clause, so `SELECT *` stands in for it.
        let selection = Selection::Star(start);
        let select = Select { distinct: false, top: None, top_span, selection, span: start };
        let mut depth = 0;
        let from = self.source_clause(&mut depth)?;
        let filter = self.where_clause(&mut depth)?;
        let span = start.to(self.last_span());
        let query = Query {
            select,
            from,
            filter,
            group_by: Vec::new(),
            group_by_span: Span::default(),
            order_by: None,
            offset_limit: None,
            span,
        };
        Ok(Node { part: query, depth, span })
    }

    fn clauses(&mut self, select: Select, start: Span, depth: &mut usize) -> Parsed<Query> {
        let from = self.source_clause(depth)?;
        let filter = self.where_clause(depth)?;
        // For errors that are about the clause as a whole.
        let group_by_start = self.token().span;
        let group_by = self.group_by_clause(depth)?;
        let group_by_span = group_by_start.to(self.last_span());
        let order_by = self.order_by_clause(depth)?;
        let offset_limit = self.offset_limit_clause()?;
        let span = start.to(self.last_span());
        Ok(Query { select, from, filter, group_by, group_by_span, order_by, offset_limit, span })
    }

    /// An expression whose height counts towards the query's.
    fn part(&mut self, depth: &mut usize) -> Parsed<Expr> {
        let node = self.expression()?;
        *depth = (*depth).max(node.depth);
        Ok(node.part)
    }

    fn select(&mut self, start: Span, depth: &mut usize) -> Parsed<Select> {
        let distinct = self.take_keyword(Keyword::Distinct);
        let mut top_span = self.token().span;
        let top = if self.take_keyword(Keyword::Top) { Some(self.count()?) } else { None };
        top_span = top_span.to(self.last_span());
        let selection = if self.at_symbol(Symbol::Star) {
            Selection::Star(self.advance())
        } else if self.take_keyword(Keyword::Value) {
            Selection::Value(self.part(depth)?)
        } else {
            let mut items = Vec::new();
            loop {
                items.push(self.select_item(depth)?);
                if !self.take_symbol(Symbol::Comma) {
                    break Selection::List(items);
                }
            }
        };
        Ok(Select { distinct, top, top_span, selection, span: start.to(self.last_span()) })
    }

    /// An expression with its name, which may also be a string.
    fn select_item(&mut self, depth: &mut usize) -> Parsed<SelectItem> {
        let expr = self.part(depth)?;
        let named = self.take_keyword(Keyword::As);
        let quoted = self.kind() == TokenKind::String;
        let alias = if quoted {
            let span = self.advance();
            Some(Name { text: lexer::decode_string(self.text_of(span)).into(), span })
        } else if named || self.at_name() {
            Some(self.name()?)
        } else {
            None
        };
        Ok(SelectItem { expr, alias, quoted })
    }

    /// `[AS] name`, if there is one.
    fn alias(&mut self) -> Parsed<Option<Name>> {
        if self.take_keyword(Keyword::As) {
            return self.name().map(Some);
        }
        if self.at_name() { self.name().map(Some) } else { Ok(None) }
    }

    fn at_name(&self) -> bool {
        self.kind() == TokenKind::Identifier
    }

    /// Whether the next token is this word, which is not reserved.
    fn at_word(&self, word: &str) -> bool {
        self.at_name() && self.text_of(self.token().span).eq_ignore_ascii_case(word)
    }

    fn name(&mut self) -> Parsed<Name> {
        if !self.at_name() {
            return Err(self.unexpected());
        }
        let span = self.advance();
        Ok(Name { text: self.text_of(span).into(), span })
    }

    /// The count of TOP: a parameter or any number; the binder requires an integer.
    fn count(&mut self) -> Parsed<Count> {
        let span = self.token().span;
        let text = self.text_of(span);
        let value = match self.kind() {
            TokenKind::Parameter => CountValue::Parameter(text.into()),
            TokenKind::Number => {
                let number = lexer::decode_number(text);
                match whole(number) {
                    Some(whole) => CountValue::Literal(whole),
                    None => CountValue::NotInteger(number.as_f64()),
                }
            }
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(Count { value, span })
    }

    /// The count of OFFSET or LIMIT: a number is written as an integer.
    fn row_count(&mut self) -> Parsed<Count> {
        let text = self.text_of(self.token().span);
        if self.kind() == TokenKind::Number && !matches!(lexer::decode_number(text), Number::Int(_)) {
            return Err(self.unexpected());
        }
        self.count()
    }

    fn source_clause(&mut self, depth: &mut usize) -> Parsed<Option<From>> {
        if !self.take_keyword(Keyword::From) {
            return Ok(None);
        }
        let mut sources = vec![self.source(depth)?];
        while self.take_keyword(Keyword::Join) {
            sources.push(self.source(depth)?);
        }
        Ok(Some(From { sources }))
    }

    fn source(&mut self, depth: &mut usize) -> Parsed<Source> {
        let start = self.token().span;
        // `t IN c.tags`: elsewhere in FROM no name is followed by IN.
        let iterate = self.at_name() && self.kind_after(1) == TokenKind::Keyword(Keyword::In);
        let mut alias = None;
        if iterate {
            alias = Some(self.name()?);
            self.advance();
        }
        let path_start = self.token().span;
        let collection = self.collection(depth)?;
        let path_span = path_start.to(self.last_span());
        if !iterate {
            alias = self.alias()?;
        }
        Ok(Source { collection, alias, iterate, span: start.to(self.last_span()), path_span })
    }

    fn collection(&mut self, depth: &mut usize) -> Parsed<Collection> {
        if self.take_symbol(Symbol::ParenOpen) {
            let node = self.query()?;
            self.expect_symbol(Symbol::ParenClose)?;
            *depth = (*depth).max(node.depth + expression::SUBQUERY_HEIGHT);
            return Ok(Collection::Subquery(Box::new(node.part)));
        }
        let root = self.name()?;
        let mut steps = Vec::new();
        loop {
            if self.take_symbol(Symbol::Dot) {
                steps.push(Step::Name(self.name()?));
            } else if self.take_symbol(Symbol::BracketOpen) {
                steps.push(self.bracket_step()?);
                self.expect_symbol(Symbol::BracketClose)?;
            } else {
                return Ok(Collection::Path { root, steps });
            }
        }
    }

    fn bracket_step(&mut self) -> Parsed<Step> {
        let span = self.token().span;
        let text = self.text_of(span);
        let step = match self.kind() {
            TokenKind::String => Step::Quoted(Name { text: lexer::decode_string(text).into(), span }),
            TokenKind::Number => Step::Index(lexer::decode_number(text)),
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(step)
    }

    fn where_clause(&mut self, depth: &mut usize) -> Parsed<Option<Expr>> {
        if self.take_keyword(Keyword::Where) { self.part(depth).map(Some) } else { Ok(None) }
    }

    fn group_by_clause(&mut self, depth: &mut usize) -> Parsed<Vec<Expr>> {
        let mut keys = Vec::new();
        if self.take_keyword(Keyword::Group) {
            self.expect_keyword(Keyword::By)?;
            keys.push(self.part(depth)?);
            while self.take_symbol(Symbol::Comma) {
                keys.push(self.part(depth)?);
                Self::bound(keys.len(), limits::KEYS_MAX, "GROUP BY expressions")?;
            }
        }
        Ok(keys)
    }

    fn order_by_clause(&mut self, depth: &mut usize) -> Parsed<Option<OrderBy>> {
        let start = self.token().span;
        if !self.take_keyword(Keyword::Order) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::By)?;
        // RANK is a name as well: it is the clause's word where a function's name follows.
        let rank = self.at_word("RANK") && self.is_callable(1);
        let mut items = Vec::new();
        if rank {
            self.advance();
            // Several are read, as clients do, and refused by the binder. If they cannot be read either, the first comma
            // is still what is wrong.
            let mut comma = None;
            loop {
                let expr = match (self.ranking_call(depth), comma) {
                    (Err(_), Some(error)) => return Err(error),
                    (expr, earlier) => {
                        comma = earlier;
                        expr?
                    }
                };
                let direction = self.direction();
                let span = expr.span.to(self.last_span());
                items.push(OrderItem { expr, direction, span });
                Self::bound(items.len(), limits::KEYS_MAX, "ORDER BY expressions")?;
                if !self.at_symbol(Symbol::Comma) {
                    break;
                }
                let error = comma.unwrap_or_else(|| self.unexpected());
                if !self.is_callable(1) {
                    return Err(error);
                }
                comma = Some(error);
                self.advance();
            }
        } else {
            loop {
                let first = self.token().span;
                let expr = self.part(depth)?;
                let direction = self.direction();
                items.push(OrderItem { expr, direction, span: first.to(self.last_span()) });
                Self::bound(items.len(), limits::KEYS_MAX, "ORDER BY expressions")?;
                if !self.take_symbol(Symbol::Comma) {
                    break;
                }
            }
        }
        Ok(Some(OrderBy { rank, items, span: start.to(self.last_span()) }))
    }

    /// Whether a function's name may stand there.
    fn is_callable(&self, ahead: usize) -> bool {
        matches!(
            self.kind_after(ahead),
            TokenKind::Identifier
                | TokenKind::Exact(ExactWord::Udf)
                | TokenKind::Keyword(Keyword::Left | Keyword::Right)
        )
    }

    fn direction(&mut self) -> Option<Direction> {
        if self.take_keyword(Keyword::Asc) {
            Some(Direction::Ascending)
        } else if self.take_keyword(Keyword::Desc) {
            Some(Direction::Descending)
        } else {
            None
        }
    }

    fn offset_limit_clause(&mut self) -> Parsed<Option<OffsetLimit>> {
        let start = self.token().span;
        if !self.take_keyword(Keyword::Offset) {
            return Ok(None);
        }
        let offset = self.row_count()?;
        self.expect_keyword(Keyword::Limit)?;
        let limit = self.row_count()?;
        Ok(Some(OffsetLimit { offset, limit, span: start.to(self.last_span()) }))
    }
}

/// The number as an unsigned integer, if it is one. What is far too large stays too large.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
fn whole(number: Number) -> Option<u64> {
    match number {
        Number::Int(value) => u64::try_from(value).ok(),
        Number::Double(value) if value >= 0.0 && value.fract() == 0.0 => Some(value as u64),
        Number::Double(_) => None,
    }
}
