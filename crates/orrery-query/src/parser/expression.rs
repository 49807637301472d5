//! Scalar expressions, by the service's grammar.
//!
//! From the weakest to the strongest: `?:`, `??` (both to the right), then one BETWEEN or a chain of OR and AND,
//! whose operands may be IN and LIKE predicates, then the binary operators by [`strength`], signs and NOT, property
//! access. BETWEEN is no operand of AND and OR, and predicates do not chain; both need parentheses.

use orrery_model::Number;

use super::{Node, Parsed, Parser};
use crate::ast::{
    BinaryOperator, Call, Expr, ExprKind, Literal, LogicalOperator, Name, Span, SubqueryKind, UnaryOperator,
};
use crate::lexer::{self, ExactWord, Keyword, Symbol, TokenKind};
use crate::limits;

/// What a subquery adds to the height of a tree: it costs more stack than an operator.
pub(super) const SUBQUERY_HEIGHT: usize = 6;

/// The strength of the weakest binary operators.
const WEAKEST: u8 = 1;

/// A binary operator and how strongly it binds. All comparisons and shifts are of one strength, and so are `+`, `-`
/// and the bit operators: `a < b << c` is `(a < b) << c`.
fn strength(symbol: Symbol) -> Option<(BinaryOperator, u8)> {
    use BinaryOperator as B;
    Some(match symbol {
        Symbol::Equal => (B::Equal, WEAKEST),
        Symbol::NotEqual | Symbol::NotEqualAngle => (B::NotEqual, WEAKEST),
        Symbol::Less => (B::Less, WEAKEST),
        Symbol::LessOrEqual => (B::LessOrEqual, WEAKEST),
        Symbol::Greater => (B::Greater, WEAKEST),
        Symbol::GreaterOrEqual => (B::GreaterOrEqual, WEAKEST),
        Symbol::ShiftLeft => (B::ShiftLeft, WEAKEST),
        Symbol::ShiftRight => (B::ShiftRight, WEAKEST),
        Symbol::UnsignedShiftRight => (B::UnsignedShiftRight, WEAKEST),
        Symbol::Concat => (B::Concat, 2),
        Symbol::Plus => (B::Add, 3),
        Symbol::Minus => (B::Subtract, 3),
        Symbol::Pipe => (B::BitOr, 3),
        Symbol::Ampersand => (B::BitAnd, 3),
        Symbol::Caret => (B::BitXor, 3),
        Symbol::Star => (B::Multiply, 4),
        Symbol::Slash => (B::Divide, 4),
        Symbol::Percent => (B::Modulo, 4),
        _ => return None,
    })
}

impl Parser<'_> {
    /// A whole expression.
    ///
    /// Parentheses at its left edge are opened in a loop rather than by recursion: generated filters
    /// such as `((((a OR b) OR c) OR d) …)` nest hundreds of them there.
    pub(super) fn expression(&mut self) -> Parsed<Node<Expr>> {
        self.enter()?;
        let mut opened = Vec::new();
        while self.at_symbol(Symbol::ParenOpen) && !self.at_special_parenthesis() {
            opened.push(self.advance());
        }
        let first = self.unary()?;
        let mut node = self.rest_of_expression(first)?;
        // From the innermost parenthesis outwards: what was in it is an operand of what follows.
        while let Some(start) = opened.pop() {
            self.expect_symbol(Symbol::ParenClose)?;
            node.span = start.to(self.last_span());
            let operand = self.postfix_of(node)?;
            node = self.rest_of_expression(operand)?;
        }
        self.leave();
        Ok(node)
    }

    /// Whether the parenthesis is that of a subquery or of LET.
    fn at_special_parenthesis(&self) -> bool {
        match self.kind_after(1) {
            TokenKind::Keyword(Keyword::Select) => true,
            TokenKind::Identifier => {
                // LET is not a reserved word: a second name after it is what makes it one.
                self.kind_after(2) == TokenKind::Identifier
                    && self.text_of(self.token_after(1).span).eq_ignore_ascii_case("LET")
            }
            _ => false,
        }
    }

    /// What follows the first operand of an expression.
    fn rest_of_expression(&mut self, first: Node<Expr>) -> Parsed<Node<Expr>> {
        let node = self.coalesced(first)?;
        if self.take_symbol(Symbol::Question) { self.conditional(node) } else { Ok(node) }
    }

    fn conditional(&mut self, condition: Node<Expr>) -> Parsed<Node<Expr>> {
        let chosen = self.expression()?;
        self.expect_symbol(Symbol::Colon)?;
        let other = self.expression()?;
        let span = condition.span.to(other.span);
        let depth = condition.depth.max(chosen.depth).max(other.depth) + 1;
        let parts = Box::new([condition.part, chosen.part, other.part]);
        Self::node(ExprKind::Conditional(parts), span, depth)
    }

    /// `a ?? b ?? c`, which is `a ?? (b ?? c)`.
    fn coalesced(&mut self, first: Node<Expr>) -> Parsed<Node<Expr>> {
        let left = self.condition_after(first)?;
        if !self.take_symbol(Symbol::Coalesce) {
            return Ok(left);
        }
        // A recursion for each operator, since they associate to the right: it has to be counted.
        self.enter()?;
        let next = self.unary()?;
        let right = self.coalesced(next)?;
        self.leave();
        Self::joined(left, BinaryOperator::Coalesce, right)
    }

    /// One BETWEEN, or a chain of AND and OR.
    fn condition_after(&mut self, first: Node<Expr>) -> Parsed<Node<Expr>> {
        let left = self.operators_after(first, WEAKEST)?;
        let is_between = TokenKind::Keyword(Keyword::Between);
        // NOT may belong to IN or LIKE as well, so it is not taken before the next word is known.
        let negated = self.at_keyword(Keyword::Not) && self.kind_after(1) == is_between;
        if negated || self.kind() == is_between {
            return self.between(left, negated);
        }
        // `current` is the chain of ANDs being read, `alternatives` the chain of ORs before it.
        let mut alternatives: Option<Node<Expr>> = None;
        let mut current = self.predicate_after(left)?;
        loop {
            if self.take_keyword(Keyword::And) {
                let right = self.predicate()?;
                current = self.logical(current, LogicalOperator::And, right)?;
            } else if self.take_keyword(Keyword::Or) {
                // AND binds more tightly, so what has been joined so far is one alternative.
                alternatives = Some(self.alternative(alternatives, current)?);
                current = self.predicate()?;
            } else {
                return self.alternative(alternatives, current);
            }
        }
    }

    fn alternative(&mut self, before: Option<Node<Expr>>, next: Node<Expr>) -> Parsed<Node<Expr>> {
        match before {
            Some(before) => self.logical(before, LogicalOperator::Or, next),
            None => Ok(next),
        }
    }

    fn logical(
        &mut self,
        left: Node<Expr>,
        operator: LogicalOperator,
        right: Node<Expr>,
    ) -> Parsed<Node<Expr>> {
        self.logical_terms += 1;
        Self::bound(self.logical_terms, limits::LOGICAL_TERMS_MAX, "AND and OR terms")?;
        let span = left.span.to(right.span);
        // A chain becomes one node, so the height of the tree does not grow with its length.
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

    /// An operand of AND or OR.
    fn predicate(&mut self) -> Parsed<Node<Expr>> {
        self.enter()?;
        let left = self.operators()?;
        let node = self.predicate_after(left)?;
        self.leave();
        Ok(node)
    }

    fn predicate_after(&mut self, left: Node<Expr>) -> Parsed<Node<Expr>> {
        let not = self.take_keyword(Keyword::Not);
        self.enter()?;
        let node = match self.kind() {
            TokenKind::Keyword(Keyword::In) => self.membership(left, not)?,
            TokenKind::Keyword(Keyword::Like) => self.like(left, not)?,
            // NOT BETWEEN was handled before, so only IN or LIKE can follow.
            _ if not => return Err(self.unexpected()),
            _ => left,
        };
        self.leave();
        Ok(node)
    }

    /// Operands joined by binary operators.
    fn operators(&mut self) -> Parsed<Node<Expr>> {
        let first = self.unary()?;
        self.operators_after(first, WEAKEST)
    }

    fn operators_after(&mut self, mut left: Node<Expr>, strength_min: u8) -> Parsed<Node<Expr>> {
        // Precedence climbing: only operators that are strong enough belong to this operand.
        while let TokenKind::Symbol(symbol) = self.kind()
            && let Some((operator, strength)) = strength(symbol)
            && strength >= strength_min
        {
            self.advance();
            self.enter()?;
            let first = self.unary()?;
            // Operators of the same strength associate to the left: the right side takes only stronger ones.
            let right = self.operators_after(first, strength + 1)?;
            self.leave();
            left = Self::joined(left, operator, right)?;
        }
        Ok(left)
    }

    fn joined(left: Node<Expr>, operator: BinaryOperator, right: Node<Expr>) -> Parsed<Node<Expr>> {
        let span = left.span.to(right.span);
        let depth = left.depth.max(right.depth) + 1;
        let kind = ExprKind::Binary { operator, left: Box::new(left.part), right: Box::new(right.part) };
        Self::node(kind, span, depth)
    }

    fn between(&mut self, left: Node<Expr>, not: bool) -> Parsed<Node<Expr>> {
        self.at += 1 + usize::from(not);
        self.enter()?;
        // Operators only: the next AND belongs to BETWEEN.
        let low = self.operators()?;
        self.expect_keyword(Keyword::And)?;
        let high = self.operators()?;
        self.leave();
        let span = left.span.to(high.span);
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
        let span = left.span.to(self.last_span());
        Self::node(ExprKind::In { not, operand: Box::new(left.part), members }, span, depth + 1)
    }

    fn like(&mut self, left: Node<Expr>, not: bool) -> Parsed<Node<Expr>> {
        self.advance();
        // The pattern is an operand, so that ESCAPE or AND may follow.
        let pattern = self.operators()?;
        let mut escape = None;
        if self.take_keyword(Keyword::Escape) {
            if self.kind() != TokenKind::String {
                return Err(self.unexpected());
            }
            let span = self.advance();
            escape = Some(Name { text: lexer::decode_string(self.text_of(span)).into(), span });
        }
        let span = left.span.to(self.last_span());
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
            if operator == UnaryOperator::Minus && self.at_touching_number(start) {
                break self.negative_number(start)?;
            }
            operators.push((operator, start));
            // Checked here too, because the list is built before the nodes whose height is checked.
            if operators.len() > limits::EXPRESSION_DEPTH_MAX {
                return Err(Self::too_deep());
            }
        };
        // The operator next to the operand applies first.
        for (operator, start) in operators.into_iter().rev() {
            let span = start.to(node.span);
            let depth = node.depth + 1;
            node = Self::node(ExprKind::Unary { operator, operand: Box::new(node.part) }, span, depth)?;
        }
        Ok(node)
    }

    /// Whether a number follows that a sign belongs to: `-1` is a literal, `- 1` an operation, and `-1[0]` the
    /// negative of `1[0]`.
    fn at_touching_number(&self, sign: Span) -> bool {
        let number =
            matches!(self.kind(), TokenKind::Number | TokenKind::Exact(ExactWord::NaN | ExactWord::Infinity));
        let goes_on = matches!(self.kind_after(1), TokenKind::Symbol(Symbol::Dot | Symbol::BracketOpen));
        number && self.token().span.start == sign.end && !goes_on
    }

    fn negative_number(&mut self, start: Span) -> Parsed<Node<Expr>> {
        let kind = self.kind();
        let span = self.advance();
        let text = self.text_of(span);
        let number = match kind {
            TokenKind::Exact(ExactWord::NaN) => Number::Double(f64::NAN),
            TokenKind::Exact(_) => Number::Double(f64::NEG_INFINITY),
            // The lowest integer is one further from zero than the highest.
            _ if text == "9223372036854775808" => Number::Int(i64::MIN),
            _ => match lexer::decode_number(text) {
                // A hexadecimal literal can be the lowest integer, which has no positive counterpart.
                Number::Int(value) => Number::Int(value.wrapping_neg()),
                Number::Double(value) => Number::Double(-value),
            },
        };
        Self::node(ExprKind::Literal(Literal::Number(number)), start.to(span), 1)
    }

    fn postfix(&mut self) -> Parsed<Node<Expr>> {
        let node = self.primary()?;
        self.postfix_of(node)
    }

    /// Property access behind an operand.
    fn postfix_of(&mut self, mut node: Node<Expr>) -> Parsed<Node<Expr>> {
        loop {
            if self.take_symbol(Symbol::Dot) {
                let name = self.name()?;
                let span = node.span.to(name.span);
                let kind = ExprKind::Member { base: Box::new(node.part), name, quoted: false };
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
        let span = base.span.to(self.last_span());
        let depth = base.depth.max(index.depth) + 1;
        let at = index.part.span;
        let kind = match index.part.kind {
            // `c["name"]` is `c.name`; only the printer needs the difference.
            ExprKind::Literal(Literal::String(text)) => {
                let name = Name { text, span: at };
                ExprKind::Member { base: Box::new(base.part), name, quoted: true }
            }
            kind => ExprKind::Index { base: Box::new(base.part), index: Box::new(Expr::new(kind, at)) },
        };
        Self::node(kind, span, depth)
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
            TokenKind::Exact(ExactWord::Udf) => self.udf_call(),
            TokenKind::Exact(word) => self.literal_word(word),
            TokenKind::Symbol(Symbol::ParenOpen) => self.parenthesized(),
            TokenKind::Symbol(Symbol::BracketOpen) => self.array(),
            TokenKind::Symbol(Symbol::BraceOpen) => self.object(),
            TokenKind::Keyword(Keyword::Exists) => self.subquery(SubqueryKind::Exists),
            TokenKind::Keyword(Keyword::Array) => self.subquery(SubqueryKind::Array),
            // The only keywords that are functions too.
            TokenKind::Keyword(Keyword::Left | Keyword::Right) => self.call(),
            TokenKind::Keyword(_)
            | TokenKind::Symbol(_)
            | TokenKind::Invalid
            | TokenKind::InvalidNumber
            | TokenKind::InvalidString
            | TokenKind::End => Err(self.unexpected()),
        }
    }

    fn literal_word(&mut self, word: ExactWord) -> Parsed<Node<Expr>> {
        let literal = match word {
            ExactWord::True => Literal::Bool(true),
            ExactWord::False => Literal::Bool(false),
            ExactWord::Null => Literal::Null,
            ExactWord::Undefined | ExactWord::Udf => Literal::Undefined,
            ExactWord::NaN => Literal::Number(Number::Double(f64::NAN)),
            ExactWord::Infinity => Literal::Number(Number::Double(f64::INFINITY)),
        };
        let span = self.advance();
        Self::node(ExprKind::Literal(literal), span, 1)
    }

    /// A call, a subquery operator or a plain name.
    fn word(&mut self) -> Parsed<Node<Expr>> {
        let span = self.token().span;
        let text = self.text_of(span);
        if self.kind_after(1) != TokenKind::Symbol(Symbol::ParenOpen) {
            self.advance();
            return Self::node(ExprKind::Identifier(text.into()), span, 1);
        }
        if self.kind_after(2) == TokenKind::Keyword(Keyword::Select) {
            let kinds =
                [("ALL", SubqueryKind::All), ("FIRST", SubqueryKind::First), ("LAST", SubqueryKind::Last)];
            let found = kinds.into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
            if let Some((_, kind)) = found {
                return self.subquery(kind);
            }
            // Other names take no query: the service notices where it ends.
            self.advance();
            self.advance();
            self.query()?;
            return Err(self.unexpected());
        }
        self.call()
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
        let special = self.at_special_parenthesis();
        let start = self.advance();
        let mut node = if !special {
            self.expression()?
        } else if self.at_keyword(Keyword::Select) {
            let node = self.query()?;
            let kind = ExprKind::Subquery { kind: SubqueryKind::Scalar, query: Box::new(node.part) };
            Self::node(kind, node.span, node.depth + SUBQUERY_HEIGHT)?
        } else {
            self.binding()?
        };
        self.expect_symbol(Symbol::ParenClose)?;
        node.span = start.to(self.last_span());
        Ok(node)
    }

    /// `LET name = value IN body`; both are operators' operands at most, no conditions.
    fn binding(&mut self) -> Parsed<Node<Expr>> {
        let start = self.advance();
        let name = self.name()?;
        self.expect_symbol(Symbol::Equal)?;
        self.enter()?;
        let value = self.operators()?;
        self.expect_keyword(Keyword::In)?;
        let body = self.operators()?;
        self.leave();
        let span = start.to(body.span);
        let depth = value.depth.max(body.depth) + 1;
        let kind = ExprKind::Let { name, value: Box::new(value.part), body: Box::new(body.part) };
        Self::node(kind, span, depth)
    }

    /// The call of a built-in function. LEFT and RIGHT are reserved words, and in capitals ever after.
    fn call(&mut self) -> Parsed<Node<Expr>> {
        let reserved = matches!(self.kind(), TokenKind::Keyword(_));
        let span = self.advance();
        let text = self.text_of(span);
        let text = if reserved { text.to_ascii_uppercase().into() } else { text.into() };
        self.arguments(span, Name { text, span }, false)
    }

    fn udf_call(&mut self) -> Parsed<Node<Expr>> {
        let start = self.advance();
        self.expect_symbol(Symbol::Dot)?;
        let name = self.name()?;
        self.arguments(start, name, true)
    }

    fn arguments(&mut self, start: Span, name: Name, udf: bool) -> Parsed<Node<Expr>> {
        self.expect_symbol(Symbol::ParenOpen)?;
        let mut depth = 0;
        let arguments = self.list(Symbol::ParenClose, &mut depth)?;
        let span = start.to(self.last_span());
        Self::node(ExprKind::Call(Box::new(Call { name, udf, arguments })), span, depth + 1)
    }

    /// The call behind ORDER BY RANK.
    pub(super) fn ranking_call(&mut self, depth: &mut usize) -> Parsed<Expr> {
        let udf = self.kind() == TokenKind::Exact(ExactWord::Udf);
        let node = if udf { self.udf_call()? } else { self.call()? };
        *depth = (*depth).max(node.depth);
        Ok(node.part)
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

    fn key(&mut self) -> Parsed<Name> {
        if self.kind() != TokenKind::String {
            return self.name();
        }
        let span = self.advance();
        Ok(Name { text: lexer::decode_string(self.text_of(span)).into(), span })
    }
}
