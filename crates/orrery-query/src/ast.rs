//! The syntax tree of a query.
//!
//! Every node has its span in the text. Nothing is resolved: names, functions and parameters are as written, and
//! parentheses are implied by the structure.

use orrery_model::{Number, Value};

pub use crate::lexer::Span;

/// A SELECT query or subquery.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub select: Select,
    pub from: Option<From>,
    pub filter: Option<Expr>,
    pub group_by: Vec<Expr>,
    /// From GROUP to the end of the clause.
    pub group_by_span: Span,
    pub order_by: Option<OrderBy>,
    pub offset_limit: Option<OffsetLimit>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    pub distinct: bool,
    pub top: Option<Count>,
    /// From TOP to its count.
    pub top_span: Span,
    pub selection: Selection,
    /// From SELECT to the end of the list.
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    Star(Span),
    Value(Expr),
    List(Vec<SelectItem>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SelectItem {
    pub expr: Expr,
    pub alias: Option<Name>,
    /// Whether the alias was written as a string.
    pub quoted: bool,
}

/// A name and its span.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    pub text: Box<str>,
    pub span: Span,
}

impl std::convert::From<&str> for Name {
    /// A name that does not occur in the text.
    fn from(text: &str) -> Self {
        Self { text: text.into(), span: Span::default() }
    }
}

/// The count of TOP, OFFSET or LIMIT.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    pub value: CountValue,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CountValue {
    /// Saturated: larger values exceed the allowed maximum anyway.
    Literal(u64),
    /// A number that is not an unsigned integer.
    NotInteger(f64),
    Parameter(Box<str>),
}

/// The first source and the joined ones.
#[derive(Clone, Debug, PartialEq)]
pub struct From {
    pub sources: Vec<Source>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub collection: Collection,
    /// The name bound to each row.
    pub alias: Option<Name>,
    /// Whether this is `alias IN collection`: one row per array element.
    pub iterate: bool,
    pub span: Span,
    /// The collection alone.
    pub path_span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Collection {
    Path { root: Name, steps: Vec<Step> },
    Subquery(Box<Query>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `.name`
    Name(Name),
    /// `["name"]`
    Quoted(Name),
    Index(Number),
}

#[derive(Clone, Debug, PartialEq)]
pub struct OrderBy {
    /// Whether this is ORDER BY RANK.
    pub rank: bool,
    pub items: Vec<OrderItem>,
    /// From ORDER to the end of the clause.
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OrderItem {
    pub expr: Expr,
    /// The direction, where written.
    pub direction: Option<Direction>,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direction {
    #[default]
    Ascending,
    Descending,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OffsetLimit {
    pub offset: Count,
    pub limit: Count,
    /// From OFFSET to the limit.
    pub span: Span,
}

/// A scalar expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    Literal(Literal),
    Identifier(Box<str>),
    /// With its leading `@`.
    Parameter(Box<str>),
    Member {
        base: Box<Expr>,
        name: Name,
        quoted: bool,
    },
    Index {
        base: Box<Expr>,
        index: Box<Expr>,
    },
    Array(Vec<Expr>),
    Object(Vec<(Name, Expr)>),
    Unary {
        operator: UnaryOperator,
        operand: Box<Expr>,
    },
    Binary {
        operator: BinaryOperator,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// A left-associative chain of one logical operator, flattened so that long filters stay shallow.
    Logical {
        operator: LogicalOperator,
        operands: Vec<Expr>,
    },
    Conditional(Box<[Expr; 3]>),
    Between {
        not: bool,
        operands: Box<[Expr; 3]>,
    },
    In {
        not: bool,
        operand: Box<Expr>,
        members: Vec<Expr>,
    },
    Like {
        not: bool,
        operands: Box<[Expr; 2]>,
        escape: Option<Name>,
    },
    /// `(LET name = value IN body)`
    Let {
        name: Name,
        value: Box<Expr>,
        body: Box<Expr>,
    },
    Call(Box<Call>),
    Subquery {
        kind: SubqueryKind,
        query: Box<Query>,
    },
    /// A placeholder that clients replace before they send a rewritten query; never parsed.
    Placeholder(Box<str>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: Name,
    pub udf: bool,
    pub arguments: Vec<Expr>,
}

#[derive(Clone, Debug)]
pub enum Literal {
    Undefined,
    Null,
    Bool(bool),
    Number(Number),
    String(Box<str>),
}

impl Literal {
    /// Its value; none for undefined.
    pub(crate) fn value(&self) -> Option<Value> {
        match self {
            Self::Undefined => None,
            Self::Null => Some(Value::Null),
            Self::Bool(flag) => Some(Value::Bool(*flag)),
            Self::Number(Number::Int(value)) => Some((*value).into()),
            Self::Number(Number::Double(value)) => Some((*value).into()),
            Self::String(text) => Some(Value::String(text.clone())),
        }
    }
}

impl PartialEq for Literal {
    /// Syntactic equality: unlike values, NaN literals equal each other.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Undefined, Self::Undefined) | (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => a == b || (a.as_f64().is_nan() && b.as_f64().is_nan()),
            (Self::String(a), Self::String(b)) => a == b,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    Minus,
    Plus,
    BitNot,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogicalOperator {
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    UnsignedShiftRight,
    Concat,
    Coalesce,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubqueryKind {
    Scalar,
    Exists,
    Array,
    All,
    First,
    Last,
}

impl BinaryOperator {
    pub fn text(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::UnsignedShiftRight => ">>>",
            Self::Concat => "||",
            Self::Coalesce => "??",
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// Whether this is one of `=`, `!=`, `<`, `<=`, `>`, `>=`.
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal
                | Self::NotEqual
                | Self::Less
                | Self::LessOrEqual
                | Self::Greater
                | Self::GreaterOrEqual
        )
    }
}

impl Expr {
    pub fn new(kind: ExprKind, span: Span) -> Self {
        Self { kind, span }
    }

    /// The expressions directly below this one; subqueries are not entered.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Literal(_)
            | ExprKind::Identifier(_)
            | ExprKind::Parameter(_)
            | ExprKind::Subquery { .. }
            | ExprKind::Placeholder(_) => Vec::new(),
            ExprKind::Member { base, .. } => vec![base],
            ExprKind::Index { base, index } => vec![base, index],
            ExprKind::Array(items) => items.iter().collect(),
            ExprKind::Object(members) => members.iter().map(|(_, value)| value).collect(),
            ExprKind::Unary { operand, .. } => vec![operand],
            ExprKind::Binary { left, right, .. } => vec![left, right],
            ExprKind::Logical { operands, .. } => operands.iter().collect(),
            ExprKind::Conditional(parts) | ExprKind::Between { operands: parts, .. } => {
                parts.iter().collect()
            }
            ExprKind::In { operand, members, .. } => std::iter::once(&**operand).chain(members).collect(),
            ExprKind::Like { operands, .. } => operands.iter().collect(),
            ExprKind::Let { value, body, .. } => vec![value, body],
            ExprKind::Call(call) => call.arguments.iter().collect(),
        }
    }
}

/// The implied name of a column without alias: the last name of a path, if any.
pub fn inferred_name(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Identifier(name) => Some(name),
        ExprKind::Member { name, .. } => Some(&name.text),
        _ => None,
    }
}

/// The column names of a select list: aliases, inferred names, or `$1`, `$2`, ….
pub fn column_names(items: &[SelectItem]) -> Vec<String> {
    let mut unnamed = 0;
    items
        .iter()
        .map(|item| {
            let given = item.alias.as_ref().map(|alias| &*alias.text);
            given.or_else(|| inferred_name(&item.expr)).map_or_else(
                || {
                    unnamed += 1;
                    format!("${unnamed}")
                },
                str::to_owned,
            )
        })
        .collect()
}
