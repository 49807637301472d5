//! Names of terms: the same text for the same expression, so that what two conditions say of it can be compared.
//!
//! A path is its slot and its steps (`0."a"[1]`), so a path's text is a prefix of the texts of its members and elements.

use std::fmt::Write;

use crate::program::{Node, Step};

/// The longest text that stands for a term.
const TERM_BYTES_MAX: usize = 1_000;

/// The name of an expression, unless it may have different values within one row.
pub(super) fn term(node: &Node) -> Option<String> {
    match node {
        Node::Slot(slot) => Some(path_term(*slot, &[])),
        Node::Path { slot, steps } => Some(path_term(*slot, steps)),
        Node::Udf { .. } | Node::Subquery { .. } | Node::Let { .. } => None,
        _ => {
            let mut text = String::new();
            write_term(node, &mut text).then_some(text)
        }
    }
}

/// The name of a path: distinct paths have distinct names.
pub(super) fn path_term(slot: usize, steps: &[Step]) -> String {
    let mut text = format!("{slot}");
    for step in steps {
        // Writing to a String cannot fail.
        let _ = match step {
            Step::Name(name) => {
                write_step(name, &mut text);
                Ok(())
            }
            Step::Index(index) => write!(text, "[{index}]"),
        };
    }
    text
}

/// A property step, quoted so that no property name can be mistaken for two steps.
pub(super) fn path_step(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 3);
    write_step(name, &mut text);
    text
}

fn write_step(name: &str, text: &mut String) {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain {
        // As it would be quoted, without looking at every character for one to escape.
        text.push_str(".\"");
        text.push_str(name);
        text.push('"');
    } else {
        // Writing to a String cannot fail.
        let _ = write!(text, ".{name:?}");
    }
}

/// Whether a path appears to have more than one step. A quoted name may look like two, which only restricts less.
pub(super) fn is_long(step: &str) -> bool {
    step.contains("\".") || step.contains("\"[") || step.contains("][") || step.contains("].")
}

/// Writes an expression so that equal expressions give equal texts. Returns false if its value may differ within a row or
/// its text would be too long.
fn write_term(node: &Node, text: &mut String) -> bool {
    if text.len() > TERM_BYTES_MAX {
        return false;
    }
    let list = |name: &str, nodes: &[&Node], text: &mut String| {
        text.push_str(name);
        text.push('(');
        let all = nodes.iter().all(|node| {
            let fine = write_term(node, text);
            text.push(',');
            fine
        });
        text.push(')');
        all
    };
    match node {
        Node::Constant(value) => {
            let _ = write!(text, "{value:?}");
            true
        }
        Node::Slot(slot) => {
            text.push_str(&path_term(*slot, &[]));
            true
        }
        Node::Path { slot, steps } => {
            text.push_str(&path_term(*slot, steps));
            true
        }
        Node::Member { base, name } => list(&format!(".{name:?}"), &[base], text),
        Node::Element { base, index } => list(&format!("[{index}]"), &[base], text),
        Node::Unary { operator, operand } => list(&format!("{operator:?}"), &[operand], text),
        Node::Binary { operator, left, right } => list(&format!("{operator:?}"), &[left, right], text),
        Node::Array(items) => list("Array", &items.iter().collect::<Vec<_>>(), text),
        Node::Call(call) => {
            // Two such calls may give different values.
            let varies = crate::functions::NOT_DETERMINISTIC.contains(&call.function.name);
            !varies && list(call.function.name, &call.arguments.iter().collect::<Vec<_>>(), text)
        }
        _ => false,
    }
}
