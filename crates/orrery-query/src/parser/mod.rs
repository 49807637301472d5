//! Tokens to tree: the clauses of a query. Expressions are in [`expression`].
//!
//! A recursive descent over the clauses with operator precedence below. Recursion is counted: text
//! nested deeper than [`limits::NESTING_MAX`] or trees deeper than [`limits::EXPRESSION_DEPTH_MAX`]
//! are refused, so no text can exhaust the stack, here or in what walks the tree later.

mod expression;

use crate::ast::{
    Collection, Count, CountValue, Direction, Expr, ExprKind, From, Name, OffsetLimit, OrderBy, OrderItem,
    Query, Select, SelectItem, Selection, Source, Span, Step,
};
use crate::error::{Code, Location, QueryError};
use crate::lexer::{self, Keyword, Symbol, Token, TokenKind};
use crate::limits;

/// Boxed, because errors are rare and results travel through deep recursion.
type Parsed<T> = Result<T, Box<QueryError>>;

/// Reads a query text. The tree is well formed but not yet [checked](crate::check).
pub fn parse(text: &str) -> Result<Query, QueryError> {
    let mut parser = Parser::new(text)?;
    let query = parser.parse_whole(Parser::query).map_err(|error| *error)?;
    Ok(query)
}

/// Reads a condition as patches send it: `FROM c WHERE …`, the FROM clause being optional.
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

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    at: usize,
    /// Levels of recursion the parser is in.
    nesting: usize,
    logical_terms: usize,
    joins: usize,
}

/// A parsed part and the height of its tree.
struct Node<T> {
    part: T,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Self, QueryError> {
        if text.len() > limits::TEXT_BYTES_MAX {
            return Err(QueryError::text(format!(
                "The SQL query text exceeded the maximum limit of {} characters.",
                limits::TEXT_BYTES_MAX
            )));
        }
        Ok(Self { text, tokens: lexer::tokens(text), at: 0, nesting: 0, logical_terms: 0, joins: 0 })
    }

    fn parse_whole(&mut self, part: fn(&mut Self) -> Parsed<Node<Query>>) -> Parsed<Query> {
        let node = part(self)?;
        if self.kind() == TokenKind::End { Ok(node.part) } else { Err(self.unexpected()) }
    }

    fn token(&self) -> Token {
        // The last token is End and is never passed.
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> TokenKind {
        self.token().kind
    }

    fn kind_after(&self, ahead: usize) -> TokenKind {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)].kind
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

    /// The error for the current token being where it is.
    #[cold]
    #[expect(clippy::unnecessary_box_returns, reason = "errors travel boxed")]
    fn unexpected(&self) -> Box<QueryError> {
        let token = self.token();
        let location = Some(location(self.text, token.span));
        let near = self.text_of(token.span);
        Box::new(match token.kind {
            TokenKind::End => {
                QueryError::new(Code::Sc(1002), location, "Syntax error, unexpected end-of-file.")
            }
            TokenKind::Invalid => {
                QueryError::new(Code::Sc(1010), location, format!("Syntax error, invalid token '{near}'."))
            }
            _ => QueryError::new(
                Code::Sc(1001),
                location,
                format!("Syntax error, incorrect syntax near '{near}'."),
            ),
        })
    }

    #[cold]
    #[expect(clippy::unnecessary_box_returns, reason = "errors travel boxed")]
    fn too_deep() -> Box<QueryError> {
        Box::new(QueryError::text("The SQL query exceeded the maximum allowed nesting of expressions."))
    }

    /// Refuses more than `limit` of what is counted.
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
        Ok(Node { part: Expr::new(kind, span), depth })
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
        let select = self.select(&mut depth)?;
        let query = self.clauses(select, start, &mut depth)?;
        self.nesting -= expression::SUBQUERY_HEIGHT;
        self.leave();
        Ok(Node { part: query, depth })
    }

    fn condition(&mut self) -> Parsed<Node<Query>> {
        let start = self.token().span;
        if !self.at_keyword(Keyword::From) && !self.at_keyword(Keyword::Where) {
            return Err(self.unexpected());
        }
        let select = Select { distinct: false, top: None, selection: Selection::Star(start) };
        let mut depth = 0;
        let from = self.source_clause(&mut depth)?;
        let filter = self.where_clause(&mut depth)?;
        let span = start.to(self.last_span());
        let query =
            Query { select, from, filter, group_by: Vec::new(), order_by: None, offset_limit: None, span };
        Ok(Node { part: query, depth })
    }

    fn clauses(&mut self, select: Select, start: Span, depth: &mut usize) -> Parsed<Query> {
        let from = self.source_clause(depth)?;
        let filter = self.where_clause(depth)?;
        let group_by = self.group_by_clause(depth)?;
        let order_by = self.order_by_clause(depth)?;
        let offset_limit = self.offset_limit_clause()?;
        let span = start.to(self.last_span());
        Ok(Query { select, from, filter, group_by, order_by, offset_limit, span })
    }

    /// An expression whose height counts for the query.
    fn part(&mut self, depth: &mut usize) -> Parsed<Expr> {
        let node = self.expression()?;
        *depth = (*depth).max(node.depth);
        Ok(node.part)
    }

    fn select(&mut self, depth: &mut usize) -> Parsed<Select> {
        let mut distinct = self.take_keyword(Keyword::Distinct);
        let top = if self.take_keyword(Keyword::Top) { Some(self.count()?) } else { None };
        distinct |= self.take_keyword(Keyword::Distinct);
        let selection = if self.at_symbol(Symbol::Star) {
            Selection::Star(self.advance())
        } else if self.take_keyword(Keyword::Value) {
            Selection::Value(self.part(depth)?)
        } else {
            let mut items = Vec::new();
            loop {
                let expr = self.part(depth)?;
                let alias = self.alias()?;
                items.push(SelectItem { expr, alias });
                if !self.take_symbol(Symbol::Comma) {
                    break Selection::List(items);
                }
            }
        };
        Ok(Select { distinct, top, selection })
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
            && !lexer::LITERAL_WORDS.contains(&self.text_of(self.token().span))
    }

    fn name(&mut self) -> Parsed<Name> {
        if !self.at_name() {
            return Err(self.unexpected());
        }
        let span = self.advance();
        Ok(Name { text: self.text_of(span).into(), span })
    }

    fn count(&mut self) -> Parsed<Count> {
        let span = self.token().span;
        let text = self.text_of(span);
        let value = match self.kind() {
            TokenKind::Parameter => CountValue::Parameter(text.into()),
            TokenKind::Number if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                CountValue::Literal(text.parse().unwrap_or(u64::MAX))
            }
            TokenKind::Number => {
                let number = lexer::decode_number(text);
                match number.as_i64().and_then(|whole| u64::try_from(whole).ok()) {
                    Some(whole) => CountValue::Literal(whole),
                    None => CountValue::NotInteger(number.as_f64()),
                }
            }
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(Count { value, span })
    }

    fn source_clause(&mut self, depth: &mut usize) -> Parsed<Option<From>> {
        if !self.take_keyword(Keyword::From) {
            return Ok(None);
        }
        let mut sources = vec![self.source(depth)?];
        while self.take_keyword(Keyword::Join) {
            self.joins += 1;
            Self::bound(self.joins, limits::JOINS_MAX, "joins")?;
            sources.push(self.source(depth)?);
        }
        Ok(Some(From { sources }))
    }

    fn source(&mut self, depth: &mut usize) -> Parsed<Source> {
        let start = self.token().span;
        if self.at_name() && self.kind_after(1) == TokenKind::Keyword(Keyword::In) {
            let alias = self.name()?;
            self.advance();
            let collection = self.collection(depth)?;
            let span = start.to(self.last_span());
            return Ok(Source { collection, alias: Some(alias), iterate: true, span });
        }
        let collection = self.collection(depth)?;
        let alias = self.alias()?;
        Ok(Source { collection, alias, iterate: false, span: start.to(self.last_span()) })
    }

    fn collection(&mut self, depth: &mut usize) -> Parsed<Collection> {
        if self.take_symbol(Symbol::ParenOpen) {
            let node = self.query()?;
            self.expect_symbol(Symbol::ParenClose)?;
            *depth = (*depth).max(node.depth + expression::SUBQUERY_HEIGHT);
            return Ok(Collection::Subquery(Box::new(node.part)));
        }
        let calls = self.kind_after(1) == TokenKind::Symbol(Symbol::ParenOpen);
        if calls && self.at_function_name() {
            return Ok(Collection::Call(self.part(depth)?));
        }
        let root = self.name()?;
        let mut steps = Vec::new();
        loop {
            if self.take_symbol(Symbol::Dot) {
                steps.push(Step::Name(self.member_name()?));
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
            TokenKind::Number => match text.parse() {
                Ok(index) => Step::Index(index),
                Err(_) => return Err(self.unexpected()),
            },
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
        if !self.take_keyword(Keyword::Order) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::By)?;
        let rank = self.take_keyword(Keyword::Rank);
        let mut items = Vec::new();
        loop {
            if rank && !self.at_function_name() {
                return Err(self.unexpected());
            }
            let start = self.at;
            let expr = self.part(depth)?;
            if rank && !matches!(expr.kind, ExprKind::Call(_)) {
                self.at = start;
                return Err(self.unexpected());
            }
            let direction = if self.take_keyword(Keyword::Asc) {
                Some(Direction::Ascending)
            } else if self.take_keyword(Keyword::Desc) {
                Some(Direction::Descending)
            } else {
                None
            };
            items.push(OrderItem { expr, direction });
            Self::bound(items.len(), limits::KEYS_MAX, "ORDER BY expressions")?;
            if !self.take_symbol(Symbol::Comma) {
                return Ok(Some(OrderBy { rank, items }));
            }
        }
    }

    fn offset_limit_clause(&mut self) -> Parsed<Option<OffsetLimit>> {
        if !self.take_keyword(Keyword::Offset) {
            return Ok(None);
        }
        let offset = self.count()?;
        self.expect_keyword(Keyword::Limit)?;
        let limit = self.count()?;
        Ok(Some(OffsetLimit { offset, limit }))
    }
}
