//! Requests for stored procedures, triggers and user-defined functions.

use http::StatusCode;
use orrery_db::{ItemOptions, ProcedureCall, Receipt, ScriptKind};
use orrery_model::Result;

use super::Call;
use crate::headers;
use crate::operation::{Verb, method_not_allowed};
use crate::path::ContainerPath;
use crate::reply::Reply;

/// The maximum number of scripts per container, in header format.
pub(super) const SCRIPT_QUOTA: &str = "functions=50;storedProcedures=100;triggers=25;";

impl Call<'_> {
    pub(super) async fn scripts(
        &self,
        receipt: &mut Receipt,
        at: &ContainerPath,
        kind: ScriptKind,
    ) -> Result<Reply> {
        match self.verb {
            Verb::Create | Verb::Upsert => {
                let upsert = self.verb == Verb::Upsert;
                let created =
                    self.database.create_script(receipt, at.pair(), kind, &self.body, upsert).await?;
                self.with_script_usage(at, Reply::metadata(&created))
            }
            _ => {
                let property = match kind {
                    ScriptKind::StoredProcedure => "StoredProcedures",
                    ScriptKind::Trigger => "Triggers",
                    ScriptKind::Function => "UserDefinedFunctions",
                };
                self.feed(property, |page| self.database.list_scripts(receipt, at.pair(), kind, page))
            }
        }
    }

    pub(super) async fn script(
        &self,
        receipt: &mut Receipt,
        at: &ContainerPath,
        kind: ScriptKind,
        id: &str,
    ) -> Result<Reply> {
        let place = (at.database.as_str(), at.container.as_str(), id);
        match self.verb {
            Verb::Read => {
                let script = self.database.read_script(receipt, place, kind)?;
                self.with_script_usage(at, Reply::metadata(&script))
            }
            Verb::Replace => {
                let if_match = self.if_match();
                let replaced =
                    self.database.replace_script(receipt, place, kind, &self.body, if_match).await?;
                self.with_script_usage(at, Reply::metadata(&replaced))
            }
            Verb::Delete => {
                self.database.delete_script(receipt, place, kind, self.if_match()).await?;
                Ok(Reply::new(StatusCode::NO_CONTENT))
            }
            Verb::Execute if kind == ScriptKind::StoredProcedure => self.execute(receipt, place).await,
            _ => Err(method_not_allowed()),
        }
    }

    async fn execute(&self, receipt: &mut Receipt, place: (&str, &str, &str)) -> Result<Reply> {
        let call = ProcedureCall {
            arguments: self.body.clone(),
            logs: headers::flag(&self.parts.headers, headers::SCRIPT_LOGGING),
            headers: self.script_headers(),
        };
        // Triggers belong to operations on items; a procedure that writes items runs none.
        let options = ItemOptions { triggers: None, ..self.item_options()? };
        let body = self.database.execute_procedure(receipt, place, &options, &call).await?;
        Ok(match body {
            Some(body) => Reply::json(StatusCode::OK, body),
            None => Reply::new(StatusCode::OK),
        })
    }

    /// The headers that scripts can read: those of the service, but no credentials.
    pub(super) fn script_headers(&self) -> Vec<(String, String)> {
        let named = self.parts.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-ms-"));
        let texts =
            named.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        texts.collect()
    }

    /// The number of scripts in the container, in header format.
    pub(super) fn script_usage(&self, at: &ContainerPath) -> Result<String> {
        let catalog = self.database.catalog();
        let container = catalog.container(&at.database, &at.container)?;
        let (procedures, triggers, functions) = self.database.script_counts(container);
        Ok(format!("functions={functions};storedProcedures={procedures};triggers={triggers};"))
    }

    fn with_script_usage(&self, at: &ContainerPath, reply: Reply) -> Result<Reply> {
        let usage = self.script_usage(at)?;
        Ok(reply.with(headers::RESOURCE_QUOTA, SCRIPT_QUOTA).with(headers::RESOURCE_USAGE, usage))
    }
}
