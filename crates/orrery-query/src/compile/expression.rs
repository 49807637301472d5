//! Compiles expressions: names become slots and paths, calls are looked up, and constant operands are computed once.
//!
//! Folding never raises an error: a constant that fails is left as it is, because the row that would evaluate it may not
//! exist. Properties computed by the container's policy are replaced by their expressions here, so nothing behind the
//! compiler knows of them.

use orrery_model::Value;
use orrery_model::container::DistanceFunction;
use orrery_model::path::push_segment;

use super::Compiler;
use crate::aggregate::{Aggregate, DistinctValues};
use crate::ast::{BinaryOperator, Call, Direction, Expr, ExprKind, Selection, SubqueryKind};
use crate::check::{aggregate_of, path_root};
use crate::context::{Context, Random};
use crate::error::{Code, QueryError};
use crate::eval::{self, Env};
use crate::functions;
use crate::like::Pattern;
use crate::limits;
use crate::operand;
use crate::printer;
use crate::program::{Block, DOCUMENT, FunctionCall, Grouping, Members, Node, Projection, Step};

impl Compiler<'_> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Node {
        // In the SELECT list of a grouped query, a grouping expression is a value of the group. It is looked
        // up as a whole, before anything looks inside it.
        if let Some(slot) = self.group_key(expr) {
            return Node::Slot(slot);
        }
        let node = match &expr.kind {
            ExprKind::Literal(literal) => Node::Constant(literal.value()),
            ExprKind::Parameter(name) => Node::Constant(self.parameter(name).cloned()),
            ExprKind::Identifier(name) => self.identifier(name),
            // Steps, calls and LET fold what they build themselves.
            ExprKind::Member { base, name, .. } => return self.member(base, &name.text),
            ExprKind::Index { base, index } => return self.index(base, index),
            ExprKind::Array(items) => Node::Array(self.exprs(items)),
            ExprKind::Object(members) => Node::Object(
                members.iter().map(|(key, value)| (key.text.clone(), self.expr(value))).collect(),
            ),
            ExprKind::Call(call) => return self.call(call),
            ExprKind::Let { name, value, body } => return self.binding(name, value, body),
            ExprKind::Subquery { kind, query } => {
                Node::Subquery { kind: *kind, block: Box::new(self.block(query, false)) }
            }
            ExprKind::Placeholder(_) => Node::Constant(Some(Value::Bool(true))),
            _ => self.operation(expr),
        };
        self.fold(node)
    }

    /// `(LET name = value IN body)`: the value is computed once.
    fn binding(&mut self, name: &crate::ast::Name, value: &Expr, body: &Expr) -> Node {
        let value = self.expr(value);
        let slot = self.slot();
        if let Some(scope) = self.scopes.last_mut() {
            scope.aliases.push((name.text.to_string(), slot));
        }
        let body = self.expr(body);
        // The name ends with the body. Its slot is never reused, so no other value can be mistaken for it.
        if let Some(scope) = self.scopes.last_mut() {
            scope.aliases.pop();
        }
        let node = Node::Let { slot, value: Box::new(value), body: Box::new(body) };
        self.fold(node)
    }

    fn exprs(&mut self, exprs: &[Expr]) -> Vec<Node> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn boxed(&mut self, expr: &Expr) -> Box<Node> {
        Box::new(self.expr(expr))
    }

    fn operation(&mut self, expr: &Expr) -> Node {
        match &expr.kind {
            ExprKind::Unary { operator, operand } => {
                Node::Unary { operator: *operator, operand: self.boxed(operand) }
            }
            ExprKind::Binary { operator, left, right } => {
                Node::Binary { operator: *operator, left: self.boxed(left), right: self.boxed(right) }
            }
            ExprKind::Logical { operator, operands } => {
                Node::Logical { operator: *operator, operands: self.exprs(operands) }
            }
            ExprKind::Conditional(parts) => Node::Conditional(self.three(parts)),
            ExprKind::Between { not, operands } => {
                Node::Between { not: *not, operands: self.three(operands) }
            }
            ExprKind::In { not, operand, members } => {
                let operand = self.boxed(operand);
                let members = self.members(members);
                // One equal constant decides, even if other members have to be computed for each row.
                if let (Node::Constant(Some(value)), Members::Computed(nodes)) = (&*operand, &members)
                    && nodes
                        .iter()
                        .any(|node| matches!(node, Node::Constant(Some(member)) if member == value))
                {
                    return Node::Constant(Some((!not).into()));
                }
                Node::In { not: *not, operand, members }
            }
            ExprKind::Like { not, operands, escape } => {
                let operands = Box::new([self.expr(&operands[0]), self.expr(&operands[1])]);
                let escape = escape.as_ref().and_then(|escape| escape.text.chars().next());
                // A constant pattern, also one from a parameter, is parsed once instead of for each row.
                let pattern = match &operands[1] {
                    Node::Constant(Some(Value::String(pattern))) => Some(Pattern::parse(pattern, escape)),
                    _ => None,
                };
                Node::Like { not: *not, operands, escape, pattern }
            }
            _ => Node::Constant(None),
        }
    }

    fn three(&mut self, parts: &[Expr; 3]) -> Box<[Node; 3]> {
        Box::new([self.expr(&parts[0]), self.expr(&parts[1]), self.expr(&parts[2])])
    }

    fn members(&mut self, members: &[Expr]) -> Members {
        let nodes = self.exprs(members);
        if !nodes.iter().all(|node| matches!(node, Node::Constant(_))) {
            return Members::Computed(nodes);
        }
        let mut set = DistinctValues::default();
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            // Undefined members never match.
            if let Node::Constant(Some(value)) = node
                && set.insert_constant(&value)
            {
                values.push(value);
            }
        }
        Members::Constant { values, set }
    }

    /// The slot of the grouping expression that equals this expression, if any.
    fn group_key(&self, expr: &Expr) -> Option<usize> {
        if !self.scopes.iter().any(|scope| scope.group.is_some()) {
            return None;
        }
        let text = printer::expression(expr);
        // A path means the same only in the query that binds its root; an expression without a root must be a
        // key of the innermost query.
        let owner = path_root(expr).and_then(|root| self.resolve(root)).map(|(depth, _)| depth);
        self.scopes.iter().enumerate().rev().find_map(|(depth, scope)| {
            let group = scope.group.as_ref()?;
            let visible = owner.map_or(depth + 1 == self.scopes.len(), |owner| owner == depth);
            let found = group.keys.iter().find(|(key, _)| visible && *key == text);
            found.map(|(_, slot)| *slot)
        })
    }

    fn identifier(&mut self, name: &str) -> Node {
        if let Some((_, slot)) = self.resolve(name) {
            return Node::Slot(slot);
        }
        self.errors.push(QueryError::new(
            Code::Sc(2001),
            None,
            format!("Identifier '{name}' could not be resolved."),
        ));
        Node::Constant(None)
    }

    fn member(&mut self, base: &Expr, name: &str) -> Node {
        // Clients break ties by the `_rid` of the document, even if the row is only an element of one of its
        // arrays.
        if let (ExprKind::Identifier(root), Some(scope)) = (&base.kind, self.scopes.last())
            && name == "_rid"
            && scope.document.as_deref() == Some(&**root)
        {
            return Node::Path { slot: DOCUMENT, steps: vec![Step::Name(name.into())] };
        }
        let base = self.expr(base);
        // Only the document itself has computed properties; further down the same name is a stored property.
        if let Node::Slot(DOCUMENT) = base
            && let Some(node) = self.computed(name)
        {
            return node;
        }
        self.step(base, Step::Name(name.into()))
    }

    fn index(&mut self, base: &Expr, index: &Expr) -> Node {
        let base_node = self.expr(base);
        match self.expr(index) {
            Node::Constant(Some(Value::String(name))) => {
                if let Node::Slot(DOCUMENT) = base_node
                    && let Some(node) = self.computed(&name)
                {
                    return node;
                }
                self.step(base_node, Step::Name(name))
            }
            Node::Constant(Some(Value::Number(number))) => {
                // A non-integer index yields nothing.
                let place = number.as_i64().and_then(|place| usize::try_from(place).ok());
                self.step(base_node, Step::Index(place.unwrap_or(usize::MAX)))
            }
            // A parameter as index may be of any type; other types select nothing.
            _ => Node::Constant(None),
        }
    }

    fn step(&self, base: Node, step: Step) -> Node {
        let node = match (base, step) {
            (Node::Slot(slot), step) => Node::Path { slot, steps: vec![step] },
            (Node::Path { slot, mut steps }, step) => {
                steps.push(step);
                Node::Path { slot, steps }
            }
            (base, Step::Name(name)) => Node::Member { base: Box::new(base), name },
            (base, Step::Index(index)) => Node::Element { base: Box::new(base), index },
        };
        self.fold(node)
    }

    /// The expression of a computed property of the document.
    fn computed(&mut self, name: &str) -> Option<Node> {
        // Computed properties cannot refer to each other: inside one, names refer to stored properties.
        if self.computing > 0 {
            return None;
        }
        let property = self.settings.computed.iter().find(|property| property.name == name)?;
        let Selection::Value(expr) = &property.query.select.selection else {
            return None;
        };
        let alias =
            property.query.from.as_ref().and_then(|from| {
                from.sources.first().and_then(crate::check::source_alias).map(str::to_owned)
            });
        // The expression of the policy sees the document only, none of the names of the query.
        let outer = std::mem::take(&mut self.scopes);
        self.scopes.push(super::Scope {
            aliases: alias.into_iter().map(|alias| (alias, DOCUMENT)).collect(),
            ..super::Scope::default()
        });
        self.computing += 1;
        let node = self.expr(expr);
        self.computing -= 1;
        self.scopes = outer;
        Some(node)
    }

    fn call(&mut self, call: &Call) -> Node {
        if call.udf {
            let arguments = self.exprs(&call.arguments);
            return Node::Udf { name: call.name.text.clone(), arguments };
        }
        if let Some(aggregate) = aggregate_of(call) {
            return self.aggregate(call, aggregate);
        }
        let Some(function) = functions::lookup(&call.name.text) else {
            self.errors.push(QueryError::new(
                Code::Sc(2005),
                None,
                format!("'{}' is not a recognized built-in function name.", call.name.text),
            ));
            return Node::Constant(None);
        };
        let arguments = self.exprs(&call.arguments);
        let path = arguments.first().and_then(policy_path);
        let distance =
            (function.name == "VECTORDISTANCE").then(|| self.distance(&arguments, path.as_deref()));
        let node = Node::Call(Box::new(FunctionCall { function, arguments, path, distance }));
        self.fold(node)
    }

    /// The metric of a VectorDistance call: its options, else the policy of its path.
    fn distance(&self, arguments: &[Node], path: Option<&str>) -> DistanceFunction {
        let named = match arguments.get(3) {
            Some(Node::Constant(Some(options))) => {
                options.get("distanceFunction").and_then(Value::as_str).and_then(DistanceFunction::parse)
            }
            _ => None,
        };
        // The policy path may be of either vector.
        let second = || arguments.get(1).and_then(policy_path);
        named.unwrap_or_else(|| {
            let path = path.map(str::to_owned).or_else(second);
            path.map_or_else(DistanceFunction::default, |path| {
                self.settings.policies.distance_function(&path)
            })
        })
    }

    fn aggregate(&mut self, call: &Call, aggregate: Aggregate) -> Node {
        // Equal aggregates, in whatever spelling, are computed once.
        let text = printer::expression(&Expr::new(
            ExprKind::Call(Box::new(call.clone())),
            crate::ast::Span::default(),
        ));
        // The group is taken out while the argument is compiled: an aggregate inside it is not one of this
        // group.
        let group = self.scopes.last_mut().and_then(|scope| scope.group.take());
        let Some(mut group) = group else {
            return self.aggregate_of_one(call, aggregate);
        };
        if group.aggregates.len() > limits::AGGREGATES_MAX {
            self.errors.push(QueryError::text(format!(
                "The SQL query exceeded the maximum number of aggregates. The allowed limit is {}.",
                limits::AGGREGATES_MAX
            )));
            // The group is not put back: an error ends the compilation anyway.
            return Node::Constant(None);
        }
        let known = group.aggregates.iter().find(|(known, _)| *known == text).map(|(_, slot)| *slot);
        let slot = known.unwrap_or_else(|| {
            let argument =
                call.arguments.first().map_or(Node::Constant(None), |argument| self.expr(argument));
            let slot = self.slot();
            group.aggregates.push((text, slot));
            group.compiled.push((aggregate, argument));
            slot
        });
        if let Some(scope) = self.scopes.last_mut() {
            scope.group = Some(group);
        }
        Node::Slot(slot)
    }

    /// An aggregate outside the SELECT list, or inside another one: the query has one row, which is aggregated alone.
    fn aggregate_of_one(&mut self, call: &Call, aggregate: Aggregate) -> Node {
        let argument = call.arguments.first().map_or(Node::Constant(None), |argument| self.expr(argument));
        let slot = self.slot();
        let grouping = Grouping {
            keys: Vec::new(),
            aggregates: vec![(aggregate, argument)],
            kept: Vec::new(),
            slots: vec![slot],
            order: Vec::new(),
        };
        // A block without sources has exactly one row: the one it is evaluated for.
        let block = Block {
            sources: Vec::new(),
            filter: None,
            grouping: Some(grouping),
            projection: Projection::Value(Node::Slot(slot)),
            distinct: false,
            order: Vec::new(),
            top: None,
            offset: None,
            limit: None,
            collects_first: false,
            many: false,
        };
        Node::Subquery { kind: SubqueryKind::Scalar, block: Box::new(block) }
    }

    /// Computes a node whose operands are all constant.
    fn fold(&self, node: Node) -> Node {
        // What a constant stands in for does not matter.
        if let Node::Binary { operator: BinaryOperator::Coalesce, left, right } = node {
            return match *left {
                Node::Constant(None) => *right,
                Node::Constant(value) => Node::Constant(value),
                left => Node::Binary { operator: BinaryOperator::Coalesce, left: Box::new(left), right },
            };
        }
        if !is_foldable(&node) {
            return node;
        }
        // No function that can be folded reads the clock or random numbers, so any will do here.
        let random = Random::new(0);
        let context = Context::new(0, &random, self.settings.policies);
        let folded = eval::evaluate(&node, Env::default(), &context).map(operand::into_value);
        match folded {
            Ok(value) => Node::Constant(value),
            // The error is raised at run time, and only if the node is reached.
            Err(_) => node,
        }
    }
}

fn is_foldable(node: &Node) -> bool {
    let constant = |node: &Node| matches!(node, Node::Constant(_));
    match node {
        Node::Constant(_) | Node::Slot(_) | Node::Path { .. } | Node::Udf { .. } | Node::Subquery { .. } => {
            false
        }
        Node::Member { base, .. } | Node::Element { base, .. } => constant(base),
        Node::Array(items) | Node::Logical { operands: items, .. } => items.iter().all(constant),
        Node::Object(members) => members.iter().all(|(_, value)| constant(value)),
        Node::Unary { operand, .. } => constant(operand),
        Node::Let { value, body, .. } => constant(value) && constant(body),
        Node::Binary { left, right, .. } => constant(left) && constant(right),
        Node::Conditional(parts) | Node::Between { operands: parts, .. } => parts.iter().all(constant),
        Node::In { operand, members, .. } => constant(operand) && matches!(members, Members::Constant { .. }),
        Node::Like { operands, .. } => operands.iter().all(constant),
        Node::Call(call) => {
            call.arguments.iter().all(constant)
                && !crate::functions::NOT_DETERMINISTIC.contains(&call.function.name)
        }
    }
}

/// The document path of an argument in the format of policies.
pub(super) fn policy_path(node: &Node) -> Option<String> {
    let Node::Path { slot: DOCUMENT, steps } = node else {
        return None;
    };
    let mut path = String::new();
    for step in steps {
        path.push('/');
        match step {
            Step::Name(name) => push_segment(name, &mut path),
            // Policies write any element of an array as `[]`.
            Step::Index(_) => path.push_str("[]"),
        }
    }
    Some(path)
}

/// The sort direction that puts the most similar vectors first.
pub(super) fn vector_direction(node: &Node) -> Direction {
    let ascending = match node {
        Node::Call(call) => call.distance.is_some_and(DistanceFunction::is_ascending),
        _ => false,
    };
    if ascending { Direction::Ascending } else { Direction::Descending }
}
