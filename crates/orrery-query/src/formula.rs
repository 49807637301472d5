//! The value of a computed property for a single item, outside of any query: for the index.

use std::sync::Arc;

use orrery_model::Value;

use crate::ast::{Expr, ExprKind, Selection};
use crate::check::source_alias;
use crate::compile::{self, Settings};
use crate::computed::{ComputedProperty, SYSTEM_NAMES};
use crate::context::{Context, Policies, Random};
use crate::eval::{self, Env};
use crate::operand::{borrowed, into_value};
use crate::program::{DOCUMENT, Node};

/// A computed property, compiled to be evaluated for items.
#[derive(Clone, Debug)]
pub struct Formula(Arc<Node>);

impl Formula {
    /// Compiles a property. `None` if it depends on more than what a client stores: on the item as a whole, on what the
    /// server adds when the item is read, or on other settings of the container.
    pub fn compile(property: &ComputedProperty) -> Option<Self> {
        let Selection::Value(expr) = &property.query.select.selection else { return None };
        let alias = property.query.from.as_ref()?.sources.first().and_then(source_alias)?;
        if !reads_stored(expr, alias) {
            return None;
        }
        let policies = Policies::default();
        let settings = Settings { parameters: &[], computed: &[], policies: &policies };
        compile::document_expression(expr, alias, settings).ok().map(|node| Self(Arc::new(node)))
    }

    /// The property of this item; `None` if it is undefined.
    pub fn value(&self, item: &Value) -> Option<Value> {
        // Definitions that depend on time or chance are rejected when they are parsed, so the seed does not
        // matter.
        let (random, policies) = (Random::new(0), Policies::default());
        let context = Context::new(0, &random, &policies);
        let values = [borrowed(item)];
        let env = Env::default();
        let env = Env::bind(&env, &[DOCUMENT], &values);
        eval::evaluate(&self.0, env, &context).ok().and_then(into_value)
    }
}

/// Whether every mention of the item is one of a property that clients store.
fn reads_stored(expr: &Expr, alias: &str) -> bool {
    let is_item = |base: &Expr| matches!(&base.kind, ExprKind::Identifier(name) if &**name == alias);
    match &expr.kind {
        ExprKind::Member { base, name, .. } if is_item(base) => {
            // Clients store `id`; the other system properties are added when an item is read.
            &*name.text == "id" || !SYSTEM_NAMES.contains(&&*name.text)
        }
        // The item as a whole includes its system properties.
        ExprKind::Identifier(name) => &**name != alias,
        // Their results depend on the container's policies.
        ExprKind::Call(call) if depends_on_policies(&call.name.text) => false,
        _ => expr.children().into_iter().all(|child| reads_stored(child, alias)),
    }
}

fn depends_on_policies(function: &str) -> bool {
    let name = function.to_ascii_uppercase();
    name.starts_with("FULLTEXT") || name == "VECTORDISTANCE"
}
