//! Authorisation: what each kind of credential permits.

use http::request::Parts;
use orrery_db::{Access, Database, ScriptKind, Wish};

use crate::auth::{AuthFailure, Principal, SignedRequest, authenticate};
use crate::headers;
use crate::operation::Verb;
use crate::options::GatewayOptions;
use crate::path::Path;
use crate::refusal::Refusal;

/// The caller and its rights.
pub(crate) async fn authorize(
    database: &Database,
    options: &GatewayOptions,
    parts: &Parts,
    verb: Verb,
    path: &Path,
) -> Result<(), Refusal> {
    // The real time, even if a test has moved the server's clock: clients sign with theirs.
    let now = options.signing_seconds(database);
    let signed = SignedRequest::of(parts);
    // The keys of this moment: a rotation counts from the next request on.
    let principal = authenticate(&signed, &options.keys.current(), options.auth, now)?;
    match principal {
        Principal::ReadOnly if verb.writes() || has_tokens(path) => Err(AuthFailure::ReadOnlyKey.into()),
        Principal::Aad if verb.writes() && !is_data(verb, path) => Err(AuthFailure::AadOperation.into()),
        Principal::Master | Principal::ReadOnly | Principal::Aad => Ok(()),
        Principal::ResourceToken(signature) => {
            // The signature proves that the token was issued; whether it still holds is looked up in the catalog
            // each time.
            let grant = database.open_resource_token(&signature).await?;
            // Every client reads the account document first, whatever it may do.
            if *path == Path::Account {
                return Ok(());
            }
            let wish = wish(verb, path, &parts.headers).ok_or(AuthFailure::ResourceTokenRights)?;
            let at = path.container().ok_or(AuthFailure::ResourceTokenRights)?;
            // A token may be limited to one key, which the request then has to name.
            let key = headers::partition_key(&parts.headers)?;
            let access = Access {
                database: &at.database,
                container: &at.container,
                wish,
                partition_key: key.as_ref(),
            };
            Ok(database.check_grant(&grant, &access)?)
        }
    }
}

/// Resources that read-only keys cannot read: the token in a permission may grant write access.
fn has_tokens(path: &Path) -> bool {
    matches!(path, Path::Permissions(..) | Path::Permission(..))
}

/// The right that an operation needs from a resource token; none if no token can grant it.
fn wish<'a>(verb: Verb, path: &'a Path, sent: &http::HeaderMap) -> Option<Wish<'a>> {
    let writes = verb.writes();
    // No wildcard: a new kind of path does not compile until its right has been decided.
    Some(match path {
        Path::Container(_) => {
            // These reveal how much data each key has.
            let sizes = [headers::POPULATE_QUOTA, headers::POPULATE_STATISTICS];
            let wants_sizes = sizes.into_iter().any(|name| headers::flag(sent, name));
            if verb == Verb::Read && !wants_sizes { Wish::Routing } else { Wish::Container { writes } }
        }
        Path::Ranges(_) | Path::Addresses(Some(_)) if verb == Verb::List => Wish::Routing,
        Path::Ranges(_) | Path::Addresses(Some(_)) => Wish::Container { writes },
        Path::Items(_) if verb == Verb::PlanQuery => Wish::Plan,
        Path::Items(_) => Wish::Items { writes },
        Path::PartitionKeyDelete(_) => Wish::Items { writes: true },
        Path::Item(_, id) => Wish::Item { id, writes },
        Path::Scripts(..) => Wish::Scripts { writes },
        Path::Script(_, ScriptKind::StoredProcedure, id) if verb == Verb::Execute => Wish::Execute { id },
        Path::Script(_, kind, id) => Wish::Script { kind: *kind, id, writes },
        Path::Conflicts(_) | Path::Conflict(..) => Wish::Conflicts { writes },
        Path::Account
        | Path::Databases
        | Path::Database(_)
        | Path::Containers(_)
        | Path::Users(_)
        | Path::User(..)
        | Path::Permissions(..)
        | Path::Permission(..)
        | Path::EncryptionKeys(_)
        | Path::EncryptionKey(..)
        | Path::Offers
        | Path::Offer(_)
        | Path::Addresses(None)
        | Path::Attachments(_)
        | Path::Malformed
        | Path::Unknown => return None,
    })
}

/// What Entra tokens can modify: items, directly and through scripts.
fn is_data(verb: Verb, path: &Path) -> bool {
    matches!(path, Path::Items(_) | Path::Item(..) | Path::PartitionKeyDelete(_))
        || verb == Verb::Execute && matches!(path, Path::Script(..))
}
