//! Which types the value of an expression can have, for any document.
//!
//! `UPPER(c.a)` is a string or undefined, so it is never true and never equals a number. Expressions over
//! constants are constants already; this is about the others.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use orrery_model::Value;

use crate::aggregate::Aggregate;
use crate::ast::{BinaryOperator, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::program::{Block, FunctionCall, Members, Node, Projection, Source, SourceRows, Step};

/// A set of types; true and false count as two.
pub(super) type Types = u8;

pub(super) const UNDEFINED: Types = 1;
pub(super) const NULL: Types = 2;
pub(super) const FALSE: Types = 4;
pub(super) const TRUE: Types = 8;
pub(super) const NUMBER: Types = 16;
pub(super) const STRING: Types = 32;
pub(super) const ARRAY: Types = 64;
pub(super) const OBJECT: Types = 128;
pub(super) const BOOL: Types = FALSE | TRUE;
pub(super) const ANY: Types = u8::MAX;
pub(super) const DEFINED: Types = ANY & !UNDEFINED;

/// Types whose values are ordered.
const ORDERED: [Types; 4] = [NULL, BOOL, NUMBER, STRING];

pub(super) fn of_value(value: Option<&Value>) -> Types {
    match value {
        None => UNDEFINED,
        Some(Value::Null) => NULL,
        Some(Value::Bool(false)) => FALSE,
        Some(Value::Bool(true)) => TRUE,
        Some(Value::Number(_)) => NUMBER,
        Some(Value::String(_)) => STRING,
        Some(Value::Array(_)) => ARRAY,
        Some(Value::Object(_)) => OBJECT,
    }
}

/// Whether some value of one is ordered relative to some value of the other.
pub(super) fn comparable(left: Types, right: Types) -> bool {
    ORDERED.iter().any(|kind| left & kind != 0 && right & kind != 0)
}

/// The types whose values may be ordered relative to values of these types.
pub(super) fn comparable_to(types: Types) -> Types {
    ORDERED.iter().filter(|kind| types & **kind != 0).fold(0, |all, kind| all | kind)
}

/// What is known about a value: its types and, for some arrays and objects, its parts.
#[derive(Clone)]
pub(super) struct Shape {
    pub(super) types: Types,
    parts: Parts,
}

#[derive(Clone)]
enum Parts {
    Unknown,
    Object(Vec<(Box<str>, Shape)>),
    Array(Vec<Shape>),
}

impl Shape {
    pub(super) fn of(types: Types) -> Self {
        Self { types, parts: Parts::Unknown }
    }

    fn step(&self, step: &Step) -> Shape {
        match (step, &self.parts) {
            (Step::Name(name), Parts::Object(members)) => {
                let found = members.iter().find(|(known, _)| known == name);
                found.map_or(Shape::of(UNDEFINED), |(_, shape)| shape.clone())
            }
            (Step::Index(index), Parts::Array(items)) => {
                items.get(*index).cloned().unwrap_or_else(|| Shape::of(UNDEFINED))
            }
            // Only objects have members, and only arrays have elements.
            (Step::Name(_), _) if self.types & OBJECT == 0 => Shape::of(UNDEFINED),
            (Step::Index(_), _) if self.types & ARRAY == 0 => Shape::of(UNDEFINED),
            _ => Shape::of(ANY),
        }
    }
}

/// The shapes of what slots stand for.
#[derive(Default)]
pub(super) struct Scope {
    slots: RefCell<HashMap<usize, Shape>>,
    /// The rows of blocks that were entered, so that none is looked at twice.
    rows: RefCell<HashMap<*const Block, Shape>>,
    steps: Cell<usize>,
    depth: Cell<usize>,
}

/// The number of expressions and levels analysed; beyond that a value may have any type.
const STEPS_MAX: usize = 20_000;
const DEPTH_MAX: usize = 40;

impl Scope {
    /// Learns the slots of a block's sources, and of its groups.
    pub(super) fn enter(&self, block: &Block) {
        self.rows(block);
    }

    fn learn(&self, block: &Block) {
        for Source { slot, iterate, rows } in &block.sources {
            let shape = match rows {
                SourceRows::Value(node) => self.shape(node),
                SourceRows::Subquery(inner) => self.rows(inner),
            };
            // An element exists, but may be anything.
            let shape = if *iterate { Shape::of(DEFINED) } else { shape };
            self.slots.borrow_mut().insert(*slot, shape);
        }
        if let Some(grouping) = &block.grouping {
            let keys = grouping.keys.iter().map(|key| self.shape(key));
            let aggregates = grouping.aggregates.iter().map(|(aggregate, argument)| {
                Shape::of(match aggregate {
                    // One of the values, or undefined if there is none.
                    Aggregate::Min | Aggregate::Max => self.types(argument) | UNDEFINED,
                    aggregate => aggregated(*aggregate),
                })
            });
            let shapes: Vec<Shape> = keys.chain(aggregates).collect();
            // Values that are kept come last. Their shapes were learnt with their sources.
            self.slots.borrow_mut().extend(grouping.slots.iter().copied().zip(shapes));
        }
    }

    /// The shape of a block's rows.
    pub(super) fn rows(&self, block: &Block) -> Shape {
        // Blocks are identified by address: the program outlives the analysis.
        let known = self.rows.borrow().get(&std::ptr::from_ref(block)).cloned();
        if let Some(known) = known {
            return known;
        }
        self.learn(block);
        let shape = self.projected(block);
        self.rows.borrow_mut().insert(std::ptr::from_ref(block), shape.clone());
        shape
    }

    fn projected(&self, block: &Block) -> Shape {
        match &block.projection {
            Projection::Row(slot) => self.slot(*slot),
            Projection::Value(node) => self.shape(node),
            Projection::Columns(columns) => {
                let members = columns.iter().map(|(name, node)| (name.clone(), self.shape(node)));
                Shape { types: OBJECT, parts: Parts::Object(members.collect()) }
            }
        }
    }

    fn slot(&self, slot: usize) -> Shape {
        self.slots.borrow().get(&slot).cloned().unwrap_or_else(|| Shape::of(ANY))
    }

    pub(super) fn types(&self, node: &Node) -> Types {
        self.shape(node).types
    }

    pub(super) fn shape(&self, node: &Node) -> Shape {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX || self.depth.get() > DEPTH_MAX {
            return Shape::of(ANY);
        }
        self.depth.set(self.depth.get() + 1);
        let shape = self.shape_of(node);
        self.depth.set(self.depth.get() - 1);
        shape
    }

    fn shape_of(&self, node: &Node) -> Shape {
        // Arms that return know parts as well; the others give only types.
        Shape::of(match node {
            Node::Constant(value) => return of_constant(value.as_ref()),
            Node::Slot(slot) => return self.slot(*slot),
            Node::Path { slot, steps } => {
                return steps.iter().fold(self.slot(*slot), |shape, step| shape.step(step));
            }
            Node::Member { base, name } => return self.shape(base).step(&Step::Name(name.clone())),
            Node::Element { base, index } => return self.shape(base).step(&Step::Index(*index)),
            Node::Array(items) => {
                let items: Vec<Shape> = items.iter().map(|item| self.shape(item)).collect();
                // Undefined elements are left out, which moves the others.
                let fixed = items.iter().all(|item| item.types & UNDEFINED == 0) || items.len() == 1;
                return Shape {
                    types: ARRAY,
                    parts: if fixed { Parts::Array(items) } else { Parts::Unknown },
                };
            }
            Node::Object(members) => {
                let members = members.iter().map(|(name, node)| (name.clone(), self.shape(node)));
                return Shape { types: OBJECT, parts: Parts::Object(members.collect()) };
            }
            Node::Unary { operator, operand } => unary(*operator, self.types(operand)),
            Node::Binary { operator: BinaryOperator::Coalesce, left, right } => {
                let left = self.shape(left);
                // The right side counts only if the left one may be undefined.
                if left.types & UNDEFINED == 0 {
                    return left;
                }
                (left.types & DEFINED) | self.types(right)
            }
            Node::Binary { operator, left, right } if operator.is_comparison() => {
                let (a, b) = (self.types(left), self.types(right));
                let constant = |node: &Node| matches!(node, Node::Constant(_));
                let equality = matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual);
                let unrelated = a & b & DEFINED == 0 && a & DEFINED != 0 && b & DEFINED != 0;
                // Against a constant the types decide: `UPPER(c.a) = 1` is never true.
                if constant(left) || constant(right) {
                    binary(*operator, a, b)
                } else if is_vague(left) || is_vague(right) || (equality && unrelated) {
                    // The service does not compare the types of two expressions.
                    BOOL | UNDEFINED
                } else {
                    binary(*operator, a, b)
                }
            }
            Node::Binary { operator, left, right } => binary(*operator, self.types(left), self.types(right)),
            Node::Logical { operator, operands } => {
                logical(*operator, operands.iter().map(|operand| self.types(operand)))
            }
            Node::Conditional(parts) => {
                let condition = self.types(&parts[0]);
                // A branch counts only if the condition can select it.
                let chosen = if condition & TRUE == 0 { 0 } else { self.types(&parts[1]) };
                let other = if condition & !TRUE == 0 { 0 } else { self.types(&parts[2]) };
                chosen | other
            }
            Node::Between { operands, .. } if operands.iter().any(is_vague) => BOOL | UNDEFINED,
            Node::Between { not, operands } => {
                let [value, low, high] = [0, 1, 2].map(|place| self.types(&operands[place]));
                // BETWEEN is an AND of two comparisons, with what they leave undefined.
                let from = binary(BinaryOperator::GreaterOrEqual, value, low);
                let to = binary(BinaryOperator::LessOrEqual, value, high);
                let within = logical(LogicalOperator::And, [from, to].into_iter());
                if *not { unary(UnaryOperator::Not, within) } else { within }
            }
            Node::In { operand, members, not } => self.membership(*not, operand, members),
            Node::Like { operands, .. } => {
                let strings = operands.iter().all(|operand| self.types(operand) & STRING != 0);
                if strings { BOOL | UNDEFINED } else { UNDEFINED }
            }
            Node::Call(call) => self.call(call),
            Node::Udf { .. } => ANY,
            Node::Subquery { kind, block } => match kind {
                SubqueryKind::Exists | SubqueryKind::All => BOOL,
                SubqueryKind::Array => ARRAY,
                // The service does not look into several rows.
                SubqueryKind::First | SubqueryKind::Last if block.many => ANY,
                SubqueryKind::Scalar | SubqueryKind::First | SubqueryKind::Last => {
                    let shape = self.rows(block);
                    let one_row = block.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty());
                    if one_row || block.filter.is_none() && block.sources.is_empty() {
                        return shape;
                    }
                    // It may also have no row.
                    return Shape { types: shape.types | UNDEFINED, parts: shape.parts };
                }
            },
            Node::Let { slot, value, body } => {
                let value = self.shape(value);
                // Slots are unique, so this needs no scope that ends with the body.
                self.slots.borrow_mut().insert(*slot, value);
                return self.shape(body);
            }
        })
    }

    fn membership(&self, not: bool, operand: &Node, members: &Members) -> Types {
        if is_undefined(operand) {
            return UNDEFINED;
        }
        let operand = self.types(operand);
        let listed = match members {
            Members::Constant { values, .. } => {
                values.iter().fold(0, |types, value| types | of_value(Some(value)))
            }
            Members::Computed(nodes) => nodes.iter().fold(0, |types, node| types | self.types(node)),
        };
        // Values of different types are never equal.
        let found = if operand & listed & DEFINED == 0 { FALSE } else { BOOL };
        let types = if operand & UNDEFINED == 0 { found } else { found | UNDEFINED };
        if not { unary(UnaryOperator::Not, types) } else { types }
    }

    fn call(&self, call: &FunctionCall) -> Types {
        let (wanted, result) = signature(call.function.name);
        for (place, argument) in call.arguments.iter().enumerate() {
            let wanted = wanted.get(place).or(wanted.last()).copied().unwrap_or(ANY);
            // No value of this argument is one that the function takes.
            if self.types(argument) & wanted == 0 {
                return UNDEFINED;
            }
        }
        match (call.function.name, &call.arguments[..]) {
            // IIF is the conditional operator as a function, which the table cannot describe.
            ("IIF", [condition, chosen, other]) => {
                let condition = self.types(condition);
                let chosen = if condition & TRUE == 0 { 0 } else { self.types(chosen) };
                let other = if condition & !TRUE == 0 { 0 } else { self.types(other) };
                chosen | other
            }
            ("FULLTEXTCONTAINSALL" | "FULLTEXTCONTAINSANY", [text, terms @ ..]) => {
                // Constants of other types are never found; what is not constant may be anything.
                let fits = |node: &Node, types: Types| {
                    !matches!(node, Node::Constant(_)) || self.types(node) & types != 0
                };
                let mut each = terms.iter().map(|term| fits(term, STRING | OBJECT));
                let found = if call.function.name.ends_with("ALL") {
                    each.all(|fits| fits)
                } else {
                    each.any(|fits| fits)
                };
                if fits(text, STRING) && found { result } else { FALSE | UNDEFINED }
            }
            ("ARRAY_CONTAINS_ALL" | "ARRAY_CONTAINS_ANY", [_, value]) if self.types(value) == UNDEFINED => {
                UNDEFINED
            }
            ("LEFT" | "RIGHT", [_, Node::Constant(Some(Value::Number(count)))])
                if count.as_f64().fract() != 0.0 =>
            {
                UNDEFINED
            }
            ("ST_ISVALID", [shape]) if self.types(shape) == UNDEFINED => FALSE,
            ("CHOOSE", [Node::Constant(Some(number)), choices @ ..]) => {
                let place = number.as_i64().and_then(|number| usize::try_from(number - 1).ok());
                place.and_then(|place| choices.get(place)).map_or(UNDEFINED, |choice| self.types(choice))
            }
            ("CHOOSE", [_, choices @ ..]) => {
                choices.iter().fold(UNDEFINED, |types, choice| types | self.types(choice))
            }
            (name, [value]) => match checked_types(name) {
                Some(checked) => {
                    let types = self.types(value);
                    let holds = if types & checked == 0 { 0 } else { TRUE };
                    // A number need not be an integer, nor a string a date: for these tests the right type
                    // does not suffice.
                    let exact = !matches!(name, "IS_INTEGER" | "IS_FINITE_NUMBER" | "IS_DATETIME");
                    holds | if types & !checked == 0 && exact { 0 } else { FALSE }
                }
                None => result,
            },
            _ => result,
        }
    }
}

/// Whether the service does not know the type of an expression when it compares it with another: what a user-defined
/// function gives, an aggregate that may be undefined, and the arrays and objects of functions.
pub(super) fn is_vague(node: &Node) -> bool {
    match node {
        Node::Udf { .. } => true,
        Node::Call(call) => matches!(signature(call.function.name).1 & DEFINED, ARRAY | OBJECT),
        Node::Subquery { kind: SubqueryKind::Scalar, block } => {
            let mut aggregates = block.grouping.iter().flat_map(|grouping| &grouping.aggregates);
            aggregates.any(|(aggregate, _)| {
                matches!(aggregate, Aggregate::Sum | Aggregate::Average | Aggregate::Min | Aggregate::Max)
            })
        }
        _ => false,
    }
}

/// Whether an expression is undefined because of a constant in it.
fn is_undefined(node: &Node) -> bool {
    let unfit = |node: &Node, wanted: Types| match node {
        Node::Constant(value) => of_value(value.as_ref()) & wanted == 0,
        // Where undefined is accepted, an undefined operand proves nothing.
        node => wanted & UNDEFINED == 0 && is_undefined(node),
    };
    match node {
        Node::Constant(value) => value.is_none(),
        Node::Unary { operator: UnaryOperator::Not, operand } => unfit(operand, BOOL),
        Node::Unary { operand, .. } => unfit(operand, NUMBER),
        Node::Binary { operator, left, right }
            if !operator.is_comparison() && *operator != BinaryOperator::Coalesce =>
        {
            let wanted = if *operator == BinaryOperator::Concat { STRING } else { NUMBER };
            unfit(left, wanted) || unfit(right, wanted)
        }
        Node::Call(call) => {
            let (wanted, _) = signature(call.function.name);
            call.arguments.iter().enumerate().any(|(place, argument)| {
                unfit(argument, wanted.get(place).or(wanted.last()).copied().unwrap_or(ANY))
            })
        }
        _ => false,
    }
}

fn of_constant(value: Option<&Value>) -> Shape {
    let parts = match value {
        Some(Value::Array(items)) => Parts::Array(items.iter().map(|item| of_constant(Some(item))).collect()),
        Some(Value::Object(object)) => Parts::Object(
            object.iter().map(|(name, value)| (name.into(), of_constant(Some(value)))).collect(),
        ),
        _ => Parts::Unknown,
    };
    Shape { types: of_value(value), parts }
}

fn aggregated(aggregate: Aggregate) -> Types {
    match aggregate {
        Aggregate::Count | Aggregate::CountIf => NUMBER,
        Aggregate::Sum | Aggregate::Average => NUMBER | UNDEFINED,
        Aggregate::MakeList | Aggregate::MakeSet => ARRAY,
        Aggregate::Min | Aggregate::Max => ANY,
    }
}

fn unary(operator: UnaryOperator, operand: Types) -> Types {
    match operator {
        UnaryOperator::Not => {
            // TRUE is the bit above FALSE, so shifting by one exchanges them.
            let inverse = ((operand & TRUE) >> 1) | ((operand & FALSE) << 1);
            // Operands that are not Boolean have no inverse.
            inverse | if operand & !BOOL == 0 { 0 } else { UNDEFINED }
        }
        _ if operand & NUMBER == 0 => UNDEFINED,
        _ if operand == NUMBER => NUMBER,
        _ => NUMBER | UNDEFINED,
    }
}

fn binary(operator: BinaryOperator, left: Types, right: Types) -> Types {
    use BinaryOperator as B;
    // An operand that may be undefined makes the result undefined too.
    let may_lack = (left | right) & UNDEFINED;
    match operator {
        B::Equal | B::NotEqual => {
            if left == UNDEFINED || right == UNDEFINED {
                return UNDEFINED;
            }
            let (same, other) = if operator == B::Equal { (TRUE, FALSE) } else { (FALSE, TRUE) };
            let can_equal = left & right & DEFINED != 0;
            // These types have only one value each.
            let single = |types: Types| matches!(types & DEFINED, NULL | TRUE | FALSE);
            let must_equal = single(left) && single(right) && left & DEFINED == right & DEFINED;
            let outcome = if can_equal { same } else { 0 } | if must_equal { 0 } else { other };
            outcome | may_lack
        }
        B::Less | B::LessOrEqual | B::Greater | B::GreaterOrEqual => {
            if comparable(left, right) {
                // Values of two comparable sets of types may still differ in type.
                BOOL | UNDEFINED
            } else {
                UNDEFINED
            }
        }
        B::Concat if left & right & STRING != 0 => {
            if left == STRING && right == STRING {
                STRING
            } else {
                STRING | UNDEFINED
            }
        }
        B::Concat => UNDEFINED,
        _ if left & right & NUMBER == 0 => UNDEFINED,
        _ if left == NUMBER && right == NUMBER => NUMBER,
        _ => NUMBER | UNDEFINED,
    }
}

fn logical(operator: LogicalOperator, operands: impl Iterator<Item = Types>) -> Types {
    let (deciding, neutral) = match operator {
        LogicalOperator::And => (FALSE, TRUE),
        LogicalOperator::Or => (TRUE, FALSE),
    };
    // One deciding operand decides; the neutral result needs all operands to be neutral.
    let (mut decided, mut all_neutral, mut other) = (false, true, false);
    for types in operands {
        decided |= types & deciding != 0;
        all_neutral &= types & neutral != 0;
        other |= types & !BOOL != 0;
    }
    (if decided { deciding } else { 0 })
        | (if all_neutral { neutral } else { 0 })
        | (if other { UNDEFINED } else { 0 })
}

/// The types that a type check holds for.
pub(super) fn checked_types(name: &str) -> Option<Types> {
    Some(match name {
        "IS_ARRAY" => ARRAY,
        "IS_BOOL" => BOOL,
        "IS_DEFINED" => DEFINED,
        "IS_NULL" => NULL,
        "IS_NUMBER" | "IS_INTEGER" | "IS_FINITE_NUMBER" => NUMBER,
        "IS_OBJECT" => OBJECT,
        "IS_PRIMITIVE" => NULL | BOOL | NUMBER | STRING,
        "IS_STRING" | "IS_DATETIME" => STRING,
        _ => return None,
    })
}

/// What a function takes, by place, the last for all further ones, and what it gives.
#[expect(clippy::match_same_arms, reason = "a table of functions, in the order of their kinds")]
pub(super) fn signature(name: &str) -> (&'static [Types], Types) {
    const NUMERIC: Types = NUMBER | UNDEFINED;
    const TEXT: Types = STRING | UNDEFINED;
    const TRUTH: Types = BOOL | UNDEFINED;
    const LIST: Types = ARRAY | UNDEFINED;
    match name {
        "ABS" | "ACOS" | "ASIN" | "ATAN" | "ATN2" | "CEILING" | "COS" | "COT" | "DEGREES" | "EXP"
        | "FLOOR" | "LOG" | "LOG10" | "NUMBERBIN" | "POWER" | "RADIANS" | "ROUND" | "SIGN" | "SIN"
        | "SQRT" | "SQUARE" | "TAN" | "TRUNC" | "INTADD" | "INTBITAND" | "INTBITLEFTSHIFT" | "INTBITNOT"
        | "INTBITOR" | "INTBITRIGHTSHIFT" | "INTBITXOR" | "INTDIV" | "INTMOD" | "INTMUL" | "INTSUB" => {
            (&[NUMBER], NUMERIC)
        }
        "RAND"
        | "PI"
        | "GETCURRENTTICKS"
        | "GETCURRENTTICKSSTATIC"
        | "GETCURRENTTIMESTAMP"
        | "GETCURRENTTIMESTAMPSTATIC" => (&[], NUMBER),
        "GETCURRENTDATETIME" | "GETCURRENTDATETIMESTATIC" => (&[], STRING),
        "HASH" => (&[ANY], NUMBER),
        "NOW" | "AGO" => (&[STRING, NUMBER], TEXT),
        "ARRAY_AVG" | "ARRAY_LENGTH" | "ARRAY_MEDIAN" | "ARRAY_SUM" => (&[ARRAY], NUMERIC),
        "ARRAY_CONCAT" | "SETDIFFERENCE" | "SETINTERSECT" | "SETUNION" => (&[ARRAY], LIST),
        "ARRAY_MAX" | "ARRAY_MIN" => (&[ARRAY], ANY),
        "ARRAY_CONTAINS" => (&[ARRAY, DEFINED, BOOL], TRUTH),
        "ARRAY_CONTAINS_ALL" | "ARRAY_CONTAINS_ANY" => (&[ARRAY, ANY], TRUTH),
        "ARRAY_SLICE" => (&[ARRAY, NUMBER], LIST),
        "SETEQUAL" => (&[ARRAY], TRUTH),
        "CHOOSE" => (&[NUMBER, ANY], ANY),
        "CONCAT"
        | "LOWER"
        | "LTRIM"
        | "REPLACE"
        | "REVERSE"
        | "RTRIM"
        | "TRIM"
        | "UPPER"
        | "SUBSTRINGAFTER"
        | "SUBSTRINGBEFORE"
        | "LASTSUBSTRINGAFTER"
        | "LASTSUBSTRINGBEFORE"
        | "REGEXREPLACE"
        | "REGEXREPLACEALL"
        | "DATETIMEFORMAT" => (&[STRING], TEXT),
        "CONTAINS" | "ENDSWITH" | "STARTSWITH" | "STRINGEQUALS" => (&[STRING, STRING, BOOL], TRUTH),
        "CONTAINS_ALL_CI" | "CONTAINS_ALL_CS" | "CONTAINS_ANY_CI" | "CONTAINS_ANY_CS" => {
            (&[STRING, ANY], TRUTH)
        }
        "REGEXMATCH" => (&[STRING], TRUTH),
        "_REGEX_MATCH" => (&[ANY], TRUTH),
        "REGEXEXTRACT" => (&[STRING, STRING, STRING, NUMBER], TEXT),
        "REGEXEXTRACTALL" => (&[STRING, STRING, STRING, NUMBER], LIST),
        "INDEX_OF" | "LASTINDEXOF" => (&[STRING, STRING, NUMBER], NUMERIC),
        "LEFT" | "RIGHT" | "SUBSTRING" => (&[STRING, NUMBER], TEXT),
        "REPLICATE" => (&[STRING | NULL, DEFINED], TEXT),
        "LENGTH"
        | "YEAR"
        | "MONTH"
        | "DAY"
        | "DATETIMETOTICKS"
        | "DATETIMETOTIMESTAMP"
        | "DATETIMEPART"
        | "DATETIMEDIFF"
        | "_FULLTEXTWORDCOUNT" => (&[STRING], NUMERIC),
        "DATETIMEADD" => (&[STRING, NUMBER, STRING], TEXT),
        "DATETIMEBIN" => (&[STRING, STRING, NUMBER, STRING], TEXT),
        "DATETIMEFROMPARTS" => (&[NUMBER], TEXT),
        "TICKSTODATETIME" | "TIMESTAMPTODATETIME" => (&[NUMBER, STRING], TEXT),
        "STRINGJOIN" => (&[ARRAY, STRING], TEXT),
        "STRINGSPLIT" | "STRINGTOARRAY" => (&[STRING], LIST),
        "STRINGTOBOOLEAN" => (&[STRING], TRUTH),
        "STRINGTONULL" => (&[STRING], ANY),
        "STRINGTONUMBER" => (&[STRING], NUMERIC),
        "STRINGTOOBJECT" => (&[STRING], OBJECT | UNDEFINED),
        "TOSTRING" => (&[DEFINED], TEXT),
        "OBJECTTOARRAY" => (&[OBJECT | NULL, DEFINED], LIST),
        "_OBJECTTOARRAY" => (&[DEFINED], LIST),
        "DOCUMENTID" => (&[OBJECT], NUMERIC),
        "FULLTEXTCONTAINS" => (&[STRING, STRING | OBJECT], TRUTH),
        "FULLTEXTCONTAINSALL" | "FULLTEXTCONTAINSANY" => (&[DEFINED], TRUTH),
        "ST_AREA" => (&[DEFINED], NUMERIC),
        "_TRY_ARRAY_CONTAINS" => (&[ARRAY, ANY, BOOL], TRUTH),
        "_PROXY_PROJECTION" => (&[ANY], OBJECT | UNDEFINED),
        "ST_DISTANCE" | "_ST_DISTANCE" | "_COMPARE_BSON_BINARYDATA" | "_COMPARE_OBJECTS" => {
            (&[DEFINED], NUMERIC)
        }
        "ST_INTERSECTS" | "ST_WITHIN" | "_ST_INTERSECTS" | "_ST_WITHIN" => (&[DEFINED], TRUTH),
        "ST_ISVALID" => (&[ANY], BOOL),
        "ST_ISVALIDDETAILED" => (&[ANY], OBJECT),
        "VECTORDISTANCE" => (&[UNDEFINED | NULL | ARRAY, UNDEFINED | NULL | ARRAY, ANY], NUMERIC),
        "_FULLTEXTSCORE" => (&[ANY], NUMERIC),
        _ => (&[ANY], ANY),
    }
}
