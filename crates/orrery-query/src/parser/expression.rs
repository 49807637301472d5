//! Scalar expressions, by operator precedence.

use orrery_model::Number;

use super::{Node, Parsed, Parser};
use crate::ast::{
    BinaryOperator, Call, Expr, ExprKind, Literal, LogicalOperator, Name, Span, SubqueryKind, UnaryOperator,
};
use crate::lexer::{self, Keyword, Symbol, TokenKind};
use crate::limits;

/// What a subquery adds to the height of a tree: it costs more stack than an operator.
pub(super) const SUBQUERY_HEIGHT: usize = 6;

/// An operator between two operands.
#[derive(Clone, Copy)]
enum Infix {
    Binary(BinaryOperator),
    Logical(LogicalOperator),
    Between,
    In,
    Like,
    /// NOT in front of one of the last three.
    Negated,
}

/// Binding strength; `?:` binds weaker than all of these, unary operators stronger.
const COALESCE: u8 = 1;
const PREDICATE: u8 = 4;

impl Parser<'_> {
    /// A whole expression.
    ///
    /// Parentheses at its left edge are opened in a loop rather than by recursion: generated filters
    /// such as `((((a OR b) OR c) OR d) …)` nest hundreds of them there.
    pub(super) fn expression(&mut self) -> Parsed<Node<Expr>> {
        self.enter()?;
        let mut opened = 0;
        while self.at_symbol(Symbol::ParenOpen) && self.kind_after(1) != TokenKind::Keyword(Keyword::Select) {
            self.advance();
            opened += 1;
        }
        let first = self.unary()?;
        let mut node = self.rest_of_expression(first)?;
        for _ in 0..opened {
            self.expect_symbol(Symbol::ParenClose)?;
            let operand = self.postfix_of(node)?;
            node = self.rest_of_expression(operand)?;
        }
        self.leave();
        Ok(node)
    }

    /// What follows the first operand of an expression.
    fn rest_of_expression(&mut self, first: Node<Expr>) -> Parsed<Node<Expr>> {
        let node = self.operators_after(first, COALESCE)?;
        if self.take_symbol(Symbol::Question) { self.conditional(node) } else { Ok(node) }
    }

    fn conditional(&mut self, condition: Node<Expr>) -> Parsed<Node<Expr>> {
        let chosen = self.expression()?;
        self.expect_symbol(Symbol::Colon)?;
        let other = self.expression()?;
        let span = condition.part.span.to(other.part.span);
        let depth = condition.depth.max(chosen.depth).max(other.depth) + 1;
        let parts = Box::new([condition.part, chosen.part, other.part]);
        Self::node(ExprKind::Conditional(parts), span, depth)
    }

    fn infix(&self) -> Option<(Infix, u8)> {
        use BinaryOperator as B;
        let (operator, strength) = match self.kind() {
            TokenKind::Symbol(symbol) => {
                let (operator, strength) = match symbol {
                    Symbol::Coalesce => (B::Coalesce, COALESCE),
                    Symbol::Concat => (B::Concat, 5),
                    Symbol::Pipe => (B::BitOr, 6),
                    Symbol::Caret => (B::BitXor, 7),
                    Symbol::Ampersand => (B::BitAnd, 8),
                    Symbol::Equal => (B::Equal, 9),
                    Symbol::NotEqual | Symbol::NotEqualAngle => (B::NotEqual, 9),
                    Symbol::Less => (B::Less, 10),
                    Symbol::LessOrEqual => (B::LessOrEqual, 10),
                    Symbol::Greater => (B::Greater, 10),
                    Symbol::GreaterOrEqual => (B::GreaterOrEqual, 10),
                    Symbol::ShiftLeft => (B::ShiftLeft, 11),
                    Symbol::ShiftRight => (B::ShiftRight, 11),
                    Symbol::UnsignedShiftRight => (B::UnsignedShiftRight, 11),
                    Symbol::Plus => (B::Add, 12),
                    Symbol::Minus => (B::Subtract, 12),
                    Symbol::Star => (B::Multiply, 13),
                    Symbol::Slash => (B::Divide, 13),
                    Symbol::Percent => (B::Modulo, 13),
                    _ => return None,
                };
                (Infix::Binary(operator), strength)
            }
            TokenKind::Keyword(Keyword::Or) => (Infix::Logical(LogicalOperator::Or), 2),
            TokenKind::Keyword(Keyword::And) => (Infix::Logical(LogicalOperator::And), 3),
            TokenKind::Keyword(Keyword::Between) => (Infix::Between, PREDICATE),
            TokenKind::Keyword(Keyword::In) => (Infix::In, PREDICATE),
            TokenKind::Keyword(Keyword::Like) => (Infix::Like, PREDICATE),
            TokenKind::Keyword(Keyword::Not) => match self.kind_after(1) {
                TokenKind::Keyword(Keyword::Between | Keyword::In | Keyword::Like) => {
                    (Infix::Negated, PREDICATE)
                }
                _ => return None,
            },
            _ => return None,
        };
        Some((operator, strength))
    }

    /// Operands joined by operators that bind at least as strongly as `strength_min`.
    fn operators(&mut self, strength_min: u8) -> Parsed<Node<Expr>> {
        let first = self.unary()?;
        self.operators_after(first, strength_min)
    }

    fn operators_after(&mut self, mut left: Node<Expr>, strength_min: u8) -> Parsed<Node<Expr>> {
        let mut strength_max = u8::MAX;
        while let Some((infix, strength)) = self.infix() {
            if strength < strength_min || strength > strength_max {
                break;
            }
            left = match infix {
                Infix::Binary(operator) => self.binary(left, operator, strength)?,
                Infix::Logical(operator) => self.logical(left, operator, strength)?,
                Infix::Between | Infix::In | Infix::Like | Infix::Negated => {
                    // Predicates do not chain: `1 BETWEEN 2 AND 3 BETWEEN 4 AND 5` is refused.
                    strength_max = PREDICATE - 1;
                    self.predicate(left)?
                }
            };
        }
        Ok(left)
    }

    fn binary(&mut self, left: Node<Expr>, operator: BinaryOperator, strength: u8) -> Parsed<Node<Expr>> {
        self.advance();
        self.enter()?;
        let right = self.operators(strength + 1)?;
        self.leave();
        let span = left.part.span.to(right.part.span);
        let depth = left.depth.max(right.depth) + 1;
        let kind = ExprKind::Binary { operator, left: Box::new(left.part), right: Box::new(right.part) };
        Self::node(kind, span, depth)
    }

    fn logical(&mut self, left: Node<Expr>, operator: LogicalOperator, strength: u8) -> Parsed<Node<Expr>> {
        self.advance();
        self.logical_terms += 1;
        Self::bound(self.logical_terms, limits::LOGICAL_TERMS_MAX, "AND and OR terms")?;
        self.enter()?;
        let right = self.operators(strength + 1)?;
        self.leave();
        let span = left.part.span.to(right.part.span);
        let (operands, depth) = match left.part.kind {
            ExprKind::Logical { operator: same, mut operands } if same == operator => {
                operands.push(right.part);
                (operands, left.depth.max(right.depth + 1))
            }
            kind => {
                let first = Expr::new(kind, left.part.span);
                (vec![first, right.part], left.depth.max(right.depth) + 1)
            }
        };
        Self::node(ExprKind::Logical { operator, operands }, span, depth)
    }

    fn predicate(&mut self, left: Node<Expr>) -> Parsed<Node<Expr>> {
        let not = self.take_keyword(Keyword::Not);
        self.enter()?;
        let node = match self.kind() {
            TokenKind::Keyword(Keyword::Between) => self.between(left, not)?,
            TokenKind::Keyword(Keyword::In) => self.membership(left, not)?,
            _ => self.like(left, not)?,
        };
        self.leave();
        Ok(node)
    }

    fn between(&mut self, left: Node<Expr>, not: bool) -> Parsed<Node<Expr>> {
        self.advance();
        let low = self.operators(PREDICATE + 1)?;
        self.expect_keyword(Keyword::And)?;
        let high = self.operators(PREDICATE + 1)?;
        let span = left.part.span.to(high.part.span);
        let depth = left.depth.max(low.depth).max(high.depth) + 1;
        let operands = Box::new([left.part, low.part, high.part]);
        Self::node(ExprKind::Between { not, operands }, span, depth)
    }

    fn membership(&mut self, left: Node<Expr>, not: bool) -> Parsed<Node<Expr>> {
        self.advance();
        self.expect_symbol(Symbol::ParenOpen)?;
        let mut depth = left.depth;
        let mut members = Vec::new();
        loop {
            members.push(self.part(&mut depth)?);
            Self::bound(members.len(), limits::IN_MEMBERS_MAX, "members of an IN list")?;
            if !self.take_symbol(Symbol::Comma) {
                break;
            }
        }
        self.expect_symbol(Symbol::ParenClose)?;
        let span = left.part.span.to(self.last_span());
        Self::node(ExprKind::In { not, operand: Box::new(left.part), members }, span, depth + 1)
    }

    fn like(&mut self, left: Node<Expr>, not: bool) -> Parsed<Node<Expr>> {
        self.expect_keyword(Keyword::Like)?;
        let pattern = self.operators(PREDICATE + 1)?;
        let mut escape = None;
        if self.take_keyword(Keyword::Escape) {
            let text = lexer::decode_string(self.text_of(self.token().span));
            if self.kind() != TokenKind::String || text.chars().count() != 1 {
                return Err(self.unexpected());
            }
            self.advance();
            escape = Some(text.into_boxed_str());
        }
        let span = left.part.span.to(self.last_span());
        let depth = left.depth.max(pattern.depth) + 1;
        let operands = Box::new([left.part, pattern.part]);
        Self::node(ExprKind::Like { not, operands, escape }, span, depth)
    }

    /// Operators in front of an operand. They are read in a loop, not by recursion: printed, each of them stands in
    /// parentheses of its own, and what is printed must be readable too.
    fn unary(&mut self) -> Parsed<Node<Expr>> {
        let mut operators = Vec::new();
        let mut node = loop {
            let operator = match self.kind() {
                TokenKind::Symbol(Symbol::Minus) => UnaryOperator::Minus,
                TokenKind::Symbol(Symbol::Plus) => UnaryOperator::Plus,
                TokenKind::Symbol(Symbol::Tilde) => UnaryOperator::BitNot,
                TokenKind::Keyword(Keyword::Not) => UnaryOperator::Not,
                _ => break self.postfix()?,
            };
            let start = self.advance();
            // A sign that touches its number belongs to it: `-1` is a literal, `- 1` an operation.
            if operator == UnaryOperator::Minus
                && self.kind() == TokenKind::Number
                && self.token().span.start == start.end
            {
                break self.negative_number(start)?;
            }
            operators.push((operator, start));
            if operators.len() > limits::EXPRESSION_DEPTH_MAX {
                return Err(Self::too_deep());
            }
        };
        for (operator, start) in operators.into_iter().rev() {
            let span = start.to(node.part.span);
            let depth = node.depth + 1;
            node = Self::node(ExprKind::Unary { operator, operand: Box::new(node.part) }, span, depth)?;
        }
        Ok(node)
    }

    fn negative_number(&mut self, start: Span) -> Parsed<Node<Expr>> {
        let end = self.advance();
        let text = self.text_of(end);
        let number = match lexer::decode_number(text) {
            // Zero keeps its sign as a double.
            Number::Int(0) => Number::Double(-0.0),
            Number::Int(value) => Number::Int(-value),
            Number::Double(_) if text == "9223372036854775808" => Number::Int(i64::MIN),
            Number::Double(value) => Number::Double(-value),
        };
        Self::node(ExprKind::Literal(Literal::Number(number)), start.to(end), 1)
    }

    fn postfix(&mut self) -> Parsed<Node<Expr>> {
        let node = self.primary()?;
        self.postfix_of(node)
    }

    fn postfix_of(&mut self, mut node: Node<Expr>) -> Parsed<Node<Expr>> {
        loop {
            if self.take_symbol(Symbol::Dot) {
                let name = self.member_name()?;
                let span = node.part.span.to(name.span);
                let kind = ExprKind::Member { base: Box::new(node.part), name: name.text, quoted: false };
                node = Self::node(kind, span, node.depth + 1)?;
            } else if self.take_symbol(Symbol::BracketOpen) {
                node = self.bracket(node)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn bracket(&mut self, base: Node<Expr>) -> Parsed<Node<Expr>> {
        let index = self.expression()?;
        self.expect_symbol(Symbol::BracketClose)?;
        let span = base.part.span.to(self.last_span());
        let depth = base.depth.max(index.depth) + 1;
        let kind = match index.part.kind {
            ExprKind::Literal(Literal::String(name)) => {
                ExprKind::Member { base: Box::new(base.part), name, quoted: true }
            }
            kind => {
                let index = Box::new(Expr::new(kind, index.part.span));
                ExprKind::Index { base: Box::new(base.part), index }
            }
        };
        Self::node(kind, span, depth)
    }

    /// A name after a dot. Of the reserved words only these three are let through.
    pub(super) fn member_name(&mut self) -> Parsed<Name> {
        if let TokenKind::Keyword(Keyword::Left | Keyword::Right | Keyword::Rank) = self.kind() {
            let span = self.advance();
            return Ok(Name { text: self.text_of(span).into(), span });
        }
        self.name()
    }

    pub(super) fn at_function_name(&self) -> bool {
        self.at_name() || matches!(self.kind(), TokenKind::Keyword(Keyword::Left | Keyword::Right))
    }

    fn primary(&mut self) -> Parsed<Node<Expr>> {
        match self.kind() {
            TokenKind::Identifier => self.word(),
            TokenKind::Number => {
                let span = self.advance();
                let number = lexer::decode_number(self.text_of(span));
                Self::node(ExprKind::Literal(Literal::Number(number)), span, 1)
            }
            TokenKind::String => {
                let span = self.advance();
                let text = lexer::decode_string(self.text_of(span));
                Self::node(ExprKind::Literal(Literal::String(text.into())), span, 1)
            }
            TokenKind::Parameter => {
                let span = self.advance();
                Self::node(ExprKind::Parameter(self.text_of(span).into()), span, 1)
            }
            TokenKind::Symbol(Symbol::ParenOpen) => self.parenthesized(),
            TokenKind::Symbol(Symbol::BracketOpen) => self.array(),
            TokenKind::Symbol(Symbol::BraceOpen) => self.object(),
            TokenKind::Keyword(keyword) => self.keyword(keyword),
            TokenKind::Symbol(_) | TokenKind::Invalid | TokenKind::End => Err(self.unexpected()),
        }
    }

    fn keyword(&mut self, keyword: Keyword) -> Parsed<Node<Expr>> {
        let calls = self.kind_after(1) == TokenKind::Symbol(Symbol::ParenOpen);
        match keyword {
            Keyword::Exists => self.subquery(SubqueryKind::Exists),
            Keyword::Array => self.subquery(SubqueryKind::Array),
            Keyword::Left | Keyword::Right if calls => self.call(),
            _ => Err(self.unexpected()),
        }
    }

    /// A literal word, a call, a subquery operator or a plain name.
    fn word(&mut self) -> Parsed<Node<Expr>> {
        let span = self.token().span;
        let text = self.text_of(span);
        let literal = match text {
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            "null" => Some(Literal::Null),
            "undefined" => Some(Literal::Undefined),
            "NaN" => Some(Literal::Number(Number::Double(f64::NAN))),
            "Infinity" => Some(Literal::Number(Number::Double(f64::INFINITY))),
            _ => None,
        };
        if let Some(literal) = literal {
            self.advance();
            return Self::node(ExprKind::Literal(literal), span, 1);
        }
        if self.kind_after(1) == TokenKind::Symbol(Symbol::ParenOpen) {
            if self.kind_after(2) == TokenKind::Keyword(Keyword::Select) {
                let kinds = [
                    ("ALL", SubqueryKind::All),
                    ("FIRST", SubqueryKind::First),
                    ("LAST", SubqueryKind::Last),
                ];
                let found = kinds.into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
                if let Some((_, kind)) = found {
                    return self.subquery(kind);
                }
            }
            return self.call();
        }
        if text == "udf" && self.kind_after(1) == TokenKind::Symbol(Symbol::Dot) {
            return self.call();
        }
        self.advance();
        Self::node(ExprKind::Identifier(text.into()), span, 1)
    }

    fn subquery(&mut self, kind: SubqueryKind) -> Parsed<Node<Expr>> {
        let start = self.advance();
        self.expect_symbol(Symbol::ParenOpen)?;
        let node = self.query()?;
        self.expect_symbol(Symbol::ParenClose)?;
        let span = start.to(self.last_span());
        let query = Box::new(node.part);
        Self::node(ExprKind::Subquery { kind, query }, span, node.depth + SUBQUERY_HEIGHT)
    }

    fn parenthesized(&mut self) -> Parsed<Node<Expr>> {
        let start = self.advance();
        if self.at_keyword(Keyword::Select) {
            let node = self.query()?;
            self.expect_symbol(Symbol::ParenClose)?;
            let span = start.to(self.last_span());
            let kind = ExprKind::Subquery { kind: SubqueryKind::Scalar, query: Box::new(node.part) };
            return Self::node(kind, span, node.depth + SUBQUERY_HEIGHT);
        }
        let node = self.expression()?;
        self.expect_symbol(Symbol::ParenClose)?;
        Ok(node)
    }

    fn call(&mut self) -> Parsed<Node<Expr>> {
        let start = self.advance();
        let mut name = Name { text: self.text_of(start).into(), span: start };
        let mut udf = false;
        if &*name.text == "udf" && self.take_symbol(Symbol::Dot) {
            udf = true;
            if !self.at_function_name() {
                return Err(self.unexpected());
            }
            let span = self.advance();
            name = Name { text: self.text_of(span).into(), span };
        }
        self.expect_symbol(Symbol::ParenOpen)?;
        let mut depth = 0;
        let arguments = self.list(Symbol::ParenClose, &mut depth)?;
        let span = start.to(self.last_span());
        Self::node(ExprKind::Call(Box::new(Call { name, udf, arguments })), span, depth + 1)
    }

    fn array(&mut self) -> Parsed<Node<Expr>> {
        let start = self.advance();
        let mut depth = 0;
        let items = self.list(Symbol::BracketClose, &mut depth)?;
        Self::node(ExprKind::Array(items), start.to(self.last_span()), depth + 1)
    }

    /// Expressions up to the closing symbol, which is taken.
    fn list(&mut self, close: Symbol, depth: &mut usize) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        if self.take_symbol(close) {
            return Ok(items);
        }
        loop {
            items.push(self.part(depth)?);
            if !self.take_symbol(Symbol::Comma) {
                self.expect_symbol(close)?;
                return Ok(items);
            }
        }
    }

    fn object(&mut self) -> Parsed<Node<Expr>> {
        let start = self.advance();
        let mut depth = 0;
        let mut members = Vec::new();
        if !self.take_symbol(Symbol::BraceClose) {
            loop {
                let key = self.key()?;
                self.expect_symbol(Symbol::Colon)?;
                members.push((key, self.part(&mut depth)?));
                if !self.take_symbol(Symbol::Comma) {
                    self.expect_symbol(Symbol::BraceClose)?;
                    break;
                }
            }
        }
        Self::node(ExprKind::Object(members), start.to(self.last_span()), depth + 1)
    }

    fn key(&mut self) -> Parsed<Box<str>> {
        let span = self.token().span;
        let text = self.text_of(span);
        let key = match self.kind() {
            TokenKind::Identifier | TokenKind::Keyword(_) => text.into(),
            TokenKind::String => lexer::decode_string(text).into(),
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(key)
    }
}
