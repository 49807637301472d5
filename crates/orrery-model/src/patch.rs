//! Partial updates: a list of operations on JSON pointers, applied in order.

use crate::container::ComputedProperty;
use crate::error::{Error, Result};
use crate::partition_key::PartitionKeyDefinition;
use crate::value::{NESTING_MAX, Number, Object, Value};

const OPERATIONS_MAX: usize = 10;
/// Properties of ours, and the id, which names the item.
const SYSTEM_PROPERTIES: [&str; 6] = ["id", "_rid", "_self", "_etag", "_attachments", "_ts"];
const LEARN_MORE: &str = "Learn more: https://aka.ms/cosmosdbpatchdocs";

/// A checked patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// `from c where …`, not yet parsed: the item must satisfy it.
    pub condition: Option<Box<str>>,
    operations: Vec<Operation>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operation {
    Add(Pointer, Value),
    Set(Pointer, Value),
    Replace(Pointer, Value),
    Remove(Pointer),
    Increment(Pointer, Number),
    Move { from: Pointer, to: Pointer },
}

/// A JSON pointer to something inside the item.
#[derive(Clone, Debug, PartialEq)]
struct Pointer {
    text: Box<str>,
    segments: Vec<Box<str>>,
}

impl Patch {
    /// Reads `{"operations": […], "condition": …}` or a bare array of operations.
    pub fn parse(body: &Value) -> Result<Self> {
        let (operations, condition) = match body {
            // Some clients send the list alone when there is no condition.
            Value::Array(operations) => (operations.as_slice(), None),
            Value::Object(object) => {
                let condition = match object.get("condition") {
                    None | Some(Value::Null) => None,
                    Some(Value::String(text)) => Some(text.clone()),
                    Some(_) => return Err(syntax("the condition is not a string")),
                };
                let operations = object.get("operations").and_then(Value::as_array);
                (operations.ok_or_else(|| syntax("the operations are missing"))?, condition)
            }
            _ => return Err(syntax("it is neither an object nor an array")),
        };
        if operations.is_empty() {
            return Err(syntax("there must be at least one patch operation"));
        }
        if operations.len() > OPERATIONS_MAX {
            return Err(Error::bad_request(format!(
                "The number of patch operations can't exceed {OPERATIONS_MAX}."
            )));
        }
        let operations = operations
            .iter()
            .enumerate()
            .map(|(at, operation)| parse_operation(operation).map_err(|error| error.into_error(at)));
        Ok(Self { condition, operations: operations.collect::<Result<_>>()? })
    }

    /// Refuses to touch the id, the partition key, system properties and computed properties.
    pub fn check_paths(
        &self,
        partition_key: &PartitionKeyDefinition,
        computed: &[ComputedProperty],
    ) -> Result<()> {
        for pointer in self.operations.iter().flat_map(Operation::pointers) {
            let first = pointer.segments[0].as_ref();
            // `ttl` is not among them: it belongs to the client, and may be patched.
            if SYSTEM_PROPERTIES.contains(&first) {
                return Err(refused(&format!("Cannot patch system property '{first}'")));
            }
            // A parent of the key would carry the key along.
            if partition_key.paths().iter().any(|path| path.segments().starts_with(&pointer.segments)) {
                return Err(refused(&format!("Cannot patch partition key property '{}'", pointer.text)));
            }
            if computed.iter().any(|property| property.name.as_ref() == first) {
                return Err(refused(&format!("Cannot patch computed property '{first}'")));
            }
        }
        Ok(())
    }

    /// Applies every operation. After an error the item may be half changed: throw it away.
    pub fn apply(&self, item: &mut Value) -> Result<()> {
        for (at, operation) in self.operations.iter().enumerate() {
            operation.apply(item).map_err(|error| error.into_error(at))?;
        }
        Ok(())
    }

    /// How many operations there are, from 1 to 10.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

/// Why one operation cannot be done; the message is completed with its place in the list.
enum Fault {
    Syntax(String),
    OutOfBounds(Box<str>),
    Absent { path: Box<str>, wanted: &'static str },
    NotANumber(Box<str>),
    NoParent { operation: &'static str, missing: Box<str> },
    MoveIntoItself,
    TooDeep,
}

impl Fault {
    fn into_error(self, at: usize) -> Error {
        let text = match self {
            Self::Syntax(why) => return syntax(&why),
            Self::OutOfBounds(index) => format!("Index({index}) to operate on is out of array bounds"),
            Self::Absent { path, wanted } => format!(
                "Node({path}) to be {wanted} is absent. Note: it might also have been removed earlier in the transaction"
            ),
            Self::NotANumber(path) => format!("Node({path}) is not a number"),
            Self::NoParent { operation, missing } => format!(
                "{operation} Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: '{missing}'"
            ),
            Self::MoveIntoItself => {
                "Move Operation cannot move a node into one of its own children".to_owned()
            }
            Self::TooDeep => format!("the nesting is deeper than {NESTING_MAX} levels"),
        };
        // The service counts operations from one.
        Error::bad_request(format!("For Operation({}): {text}. {LEARN_MORE}", at + 1))
    }
}

fn syntax(why: &str) -> Error {
    refused(&format!("check syntax of patch specification: {why}"))
}

fn refused(why: &str) -> Error {
    Error::bad_request(format!("Invalid patch request: {why}. {LEARN_MORE}"))
}

fn parse_operation(operation: &Value) -> Result<Operation, Fault> {
    let fault = |why: &str| Fault::Syntax(why.to_owned());
    let operation = operation.as_object().ok_or_else(|| fault("an operation is not an object"))?;
    let name =
        operation.get("op").and_then(Value::as_str).ok_or_else(|| fault("an operation has no 'op'"))?;
    let path = Pointer::parse(operation, "path")?;
    let value = || operation.get("value").cloned().ok_or_else(|| fault("an operation has no 'value'"));
    match name {
        "add" => Ok(Operation::Add(path, value()?)),
        "set" => Ok(Operation::Set(path, value()?)),
        "replace" => Ok(Operation::Replace(path, value()?)),
        "remove" => Ok(Operation::Remove(path)),
        "incr" => {
            let by = value()?.as_number().ok_or_else(|| fault("the 'value' of 'incr' is not a number"))?;
            Ok(Operation::Increment(path, by))
        }
        "move" => Ok(Operation::Move { from: Pointer::parse(operation, "from")?, to: path }),
        _ => Err(Fault::Syntax(format!("the operation '{name}' does not exist"))),
    }
}

impl Operation {
    fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        let (path, from) = match self {
            Self::Move { from, to } => (to, Some(from)),
            Self::Add(path, _)
            | Self::Set(path, _)
            | Self::Replace(path, _)
            | Self::Remove(path)
            | Self::Increment(path, _) => (path, None),
        };
        std::iter::once(path).chain(from)
    }

    fn apply(&self, item: &mut Value) -> Result<(), Fault> {
        match self {
            Self::Add(path, value) => add(item, path, value.clone(), "Add"),
            Self::Set(path, value) => set(item, path, value.clone()),
            Self::Replace(path, value) => {
                check_depth(path, value)?;
                *existing(item, path, "replaced")? = value.clone();
                Ok(())
            }
            Self::Remove(path) => remove(item, path, "removed").map(drop),
            Self::Increment(path, by) => increment(item, path, *by),
            Self::Move { from, to } => {
                if to.segments.len() > from.segments.len() && to.segments.starts_with(&from.segments) {
                    return Err(Fault::MoveIntoItself);
                }
                // The target is found after the removal, which may have shifted the elements of an array.
                let value = remove(item, from, "moved")?;
                add(item, to, value, "Given")
            }
        }
    }
}

fn add(item: &mut Value, path: &Pointer, value: Value, operation: &'static str) -> Result<(), Fault> {
    check_depth(path, &value)?;
    match path.parent_in(item, operation)? {
        Parent::Object(object) => object.set(path.last(), value),
        Parent::Array(elements) => {
            // As in RFC 6902, `-` and the index after the last one append; others insert before.
            let index = if path.last() == "-" { elements.len() } else { path.index(elements.len() + 1)? };
            elements.insert(index, value);
        }
    }
    Ok(())
}

fn set(item: &mut Value, path: &Pointer, value: Value) -> Result<(), Fault> {
    check_depth(path, &value)?;
    match path.parent_in(item, "Given")? {
        Parent::Object(object) => object.set(path.last(), value),
        Parent::Array(elements) if path.last() == "-" => elements.push(value),
        Parent::Array(elements) => {
            let index = path.index(elements.len())?;
            // Unlike `add`, which inserts.
            elements[index] = value;
        }
    }
    Ok(())
}

fn remove(item: &mut Value, path: &Pointer, wanted: &'static str) -> Result<Value, Fault> {
    match path.parent_in(item, "Given")? {
        Parent::Object(object) => {
            object.remove(path.last()).ok_or_else(|| Fault::Absent { path: path.text.clone(), wanted })
        }
        Parent::Array(elements) => {
            let index = path.index(elements.len())?;
            Ok(elements.remove(index))
        }
    }
}

fn increment(item: &mut Value, path: &Pointer, by: Number) -> Result<(), Fault> {
    if let Parent::Object(object) = path.parent_in(item, "Given")?
        && !object.contains(path.last())
    {
        // A missing property counts as zero.
        object.set(path.last(), Value::Number(by));
        return Ok(());
    }
    let target = existing(item, path, "incremented")?;
    let Value::Number(number) = target else { return Err(Fault::NotANumber(path.text.clone())) };
    // Integers stay integers unless the sum overflows.
    let sum = match (*number, by) {
        (Number::Int(a), Number::Int(b)) => a.checked_add(b).map(Number::Int),
        _ => None,
    };
    let sum = sum.unwrap_or_else(|| Number::Double(number.as_f64() + by.as_f64()));
    // An overflow to infinity has no JSON form.
    if !sum.as_f64().is_finite() {
        return Err(Fault::NotANumber(path.text.clone()));
    }
    *number = sum;
    Ok(())
}

fn existing<'a>(item: &'a mut Value, path: &Pointer, wanted: &'static str) -> Result<&'a mut Value, Fault> {
    match path.parent_in(item, "Given")? {
        Parent::Object(object) => {
            object.get_mut(path.last()).ok_or_else(|| Fault::Absent { path: path.text.clone(), wanted })
        }
        Parent::Array(elements) => {
            let index = path.index(elements.len())?;
            Ok(&mut elements[index])
        }
    }
}

/// Operations could otherwise build an item that could not have been sent.
fn check_depth(path: &Pointer, value: &Value) -> Result<(), Fault> {
    fn fits(value: &Value, levels: usize) -> bool {
        match value {
            Value::Array(elements) => levels > 0 && elements.iter().all(|element| fits(element, levels - 1)),
            Value::Object(object) => levels > 0 && object.iter().all(|(_, member)| fits(member, levels - 1)),
            _ => true,
        }
    }
    // Each segment of the path is a level above the value.
    let levels = NESTING_MAX.checked_sub(path.segments.len()).ok_or(Fault::TooDeep)?;
    if fits(value, levels) { Ok(()) } else { Err(Fault::TooDeep) }
}

enum Parent<'a> {
    Object(&'a mut Object),
    Array(&'a mut Vec<Value>),
}

impl Pointer {
    fn parse(operation: &Object, name: &str) -> Result<Self, Fault> {
        let text = operation.get(name).and_then(Value::as_str);
        let text = text.ok_or_else(|| Fault::Syntax(format!("an operation has no '{name}'")))?;
        let invalid =
            || Fault::Syntax(format!("the path '{text}' is not a JSON pointer to a property or an element"));
        let rest = text.strip_prefix('/').ok_or_else(invalid)?;
        // Unescaped after splitting, so that `~1` can stand for a slash within a name.
        let segments = rest.split('/').map(|segment| unescape(segment).filter(|segment| !segment.is_empty()));
        let segments = segments.collect::<Option<_>>().ok_or_else(invalid)?;
        Ok(Self { text: text.into(), segments })
    }

    fn last(&self) -> &str {
        self.segments.last().expect("a pointer has a segment")
    }

    /// The last segment as an index below `end`.
    fn index(&self, end: usize) -> Result<usize, Fault> {
        array_index(self.last(), end).ok_or_else(|| Fault::OutOfBounds(self.last().into()))
    }

    /// What holds the last segment.
    fn parent_in<'a>(&self, item: &'a mut Value, operation: &'static str) -> Result<Parent<'a>, Fault> {
        let mut node = item;
        // The first segment whose node is missing, or cannot hold the next one, is named.
        let mut missing = &self.segments[0];
        for segment in &self.segments[..self.segments.len() - 1] {
            missing = segment;
            let child = match node {
                Value::Object(object) => object.get_mut(segment),
                Value::Array(elements) => {
                    array_index(segment, elements.len()).and_then(|index| elements.get_mut(index))
                }
                _ => None,
            };
            node = child.ok_or_else(|| Fault::NoParent { operation, missing: missing.clone() })?;
        }
        match node {
            Value::Object(object) => Ok(Parent::Object(object)),
            Value::Array(elements) => Ok(Parent::Array(elements)),
            _ => Err(Fault::NoParent { operation, missing: missing.clone() }),
        }
    }
}

fn array_index(segment: &str, end: usize) -> Option<usize> {
    // `parse` alone would accept a plus sign.
    let digits = segment.bytes().all(|byte| byte.is_ascii_digit());
    segment.parse().ok().filter(|index| digits && *index < end)
}

/// `~1` is `/`, `~0` is `~`; any other `~` is an error.
fn unescape(segment: &str) -> Option<Box<str>> {
    let mut parts = segment.split('~');
    let mut out = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        out.push(escaped);
        out.push_str(rest);
    }
    Some(out.into())
}

#[cfg(test)]
mod tests;
