//! Continuation tokens of queries as clients see them.
//!
//! To a query over all ranges the service answers with JSON, `{"token":"…","range":{"min":"","max":"FF"}}`, which the
//! JavaScript client's suite reads; to others with the bare token. Either is taken back.

use orrery_db::FeedScope;
use orrery_model::value::{self, Value, write_json_string};

/// The database's own token in what a client sends.
///
/// A token that the service has made (`-RID:~…#RT:1#TRC:2…`) names a place that cannot be found here. With a feed range
/// the Python client's suite expects that it has no effect; everywhere else it stays, and is refused.
pub(crate) fn read(sent: String, scope: &FeedScope) -> Option<String> {
    if scope.window.is_some() && is_from_service(&sent) {
        return None;
    }
    if !sent.starts_with('{') {
        return Some(sent);
    }
    let parsed = value::parse(sent.as_bytes()).ok();
    let token = parsed.as_ref().and_then(|parsed| parsed.get("token")).and_then(Value::as_str);
    // What is not of our form goes on as it is, for the database to refuse with its own message.
    Some(token.map_or(sent.clone(), str::to_owned))
}

/// The token as the client gets it.
pub(crate) fn write(token: &str, scope: &FeedScope) -> String {
    if scope.partition_key.is_some() || scope.range_id.is_some() || scope.window.is_some() {
        return token.to_owned();
    }
    let mut text = String::from("{\"token\":");
    write_json_string(token, &mut text);
    text.push_str(",\"range\":{\"min\":\"\",\"max\":\"FF\"}}");
    text
}

fn is_from_service(token: &str) -> bool {
    let rest = token.strip_prefix(['-', '+']).unwrap_or(token);
    rest.starts_with("RID:") && rest.contains("#RT:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_they_were() {
        let everything = FeedScope::default();
        let sent = write("AbC-_1", &everything);
        assert_eq!(sent, r#"{"token":"AbC-_1","range":{"min":"","max":"FF"}}"#);
        assert_eq!(read(sent, &everything).as_deref(), Some("AbC-_1"));
        let range = FeedScope { range_id: Some(0), ..FeedScope::default() };
        assert_eq!(write("AbC", &range), "AbC");
        assert_eq!(read("AbC".to_owned(), &range).as_deref(), Some("AbC"));
        // What is not a token of this form is left to be refused.
        assert_eq!(read("{}".to_owned(), &range).as_deref(), Some("{}"));
        assert_eq!(read("-RID:~a#RT:1".to_owned(), &range).as_deref(), Some("-RID:~a#RT:1"));
    }
}
