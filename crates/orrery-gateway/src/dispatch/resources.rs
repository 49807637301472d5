//! Requests for everything but items: the account, databases, containers, ranges, offers, users, permissions.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use orrery_db::{
    AccountChange, MetadataPage, OfferReply, PageRequest, PartitionView, RangesPage, Receipt, ResourceFeed,
    item_quota,
};
use orrery_model::offer::{Migration, Throughput};
use orrery_model::{Error, Result, Value};

use super::Call;
use super::scripts::SCRIPT_QUOTA;
use crate::operation::{Verb, method_not_allowed};
use crate::path::{ContainerPath, Path, query_value};
use crate::reply::Reply;
use crate::wire::throughput;
use crate::{account, addresses, headers};

/// How long to wait for the splits of a replaced offer before responding that it is pending. Small containers split
/// faster, which saves their clients from polling: some poll only every 30 seconds.
const OFFER_WAIT_MAX: Duration = Duration::from_secs(2);

impl Call<'_> {
    /// Dispatches the request by its path.
    pub(crate) async fn dispatch(&self, receipt: &mut Receipt) -> Result<Reply> {
        match self.path {
            Path::Account => self.account(),
            Path::Databases => self.databases(receipt).await,
            Path::Database(id) => self.database(receipt, id).await,
            Path::Containers(database) => self.containers(receipt, database).await,
            Path::Container(at) => self.container(receipt, at).await,
            Path::Items(at) => self.items(receipt, at).await,
            Path::Item(at, id) => self.item(receipt, at, id).await,
            Path::PartitionKeyDelete(at) => self.partition_key_delete(receipt, at).await,
            Path::Ranges(at) => self.ranges(receipt, at),
            Path::Users(database) => self.users(receipt, database).await,
            Path::User(database, user) => self.user(receipt, database, user).await,
            Path::Permissions(database, user) => self.permissions(receipt, database, user).await,
            Path::Permission(database, user, permission) => {
                self.permission(receipt, database, user, permission).await
            }
            Path::Offers => self.offers(receipt),
            Path::Offer(rid) => self.offer(receipt, rid).await,
            Path::Conflicts(at) => self.conflicts(receipt, at),
            Path::Conflict(at, _) => self.conflict(at),
            Path::Scripts(at, kind) => self.scripts(receipt, at, *kind).await,
            Path::Script(at, kind, id) => self.script(receipt, at, *kind, id).await,
            Path::EncryptionKeys(database) => self.encryption_keys(receipt, database).await,
            Path::EncryptionKey(database, key) => self.encryption_key(receipt, (database, key)).await,
            Path::Addresses(at) => self.addresses(at.as_ref()),
            Path::Attachments(_) => Err(Error::not_implemented(
                "Attachments are not supported. Keep files in an object store and their addresses in the item.",
            )),
            // Rejected before, when the verb was decided.
            Path::Malformed | Path::Unknown => Err(method_not_allowed()),
        }
    }

    pub(super) fn page(&self) -> Result<PageRequest> {
        Ok(PageRequest {
            items_max: headers::number(&self.parts.headers, headers::MAX_ITEM_COUNT)?,
            continuation: headers::owned(&self.parts.headers, headers::CONTINUATION),
        })
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        headers::non_empty(&self.parts.headers, name)
    }

    pub(super) fn if_match(&self) -> Option<&str> {
        self.header("if-match")
    }

    fn throughput(&self) -> Result<Option<Throughput>> {
        throughput::requested(self.header(headers::OFFER_THROUGHPUT), self.header(headers::OFFER_AUTOSCALE))
    }

    /// Lists or queries a feed of the catalog.
    fn catalog_feed(&self, receipt: &mut Receipt, property: &str, feed: ResourceFeed<'_>) -> Result<Reply> {
        self.feed(property, |page| self.database.list(receipt, feed, page))
    }

    /// A complete feed or, for a query, the rows it selects from the feed.
    pub(super) fn feed(
        &self,
        property: &str,
        list: impl FnOnce(&PageRequest) -> Result<MetadataPage>,
    ) -> Result<Reply> {
        match self.verb {
            Verb::List => Ok(Reply::feed(property, &list(&self.page()?)?)),
            Verb::Query => {
                // A query selects from the whole feed; its page size and its token apply to the rows that it
                // selects.
                let everything = PageRequest { items_max: Some(-1), continuation: None };
                let all = list(&everything)?;
                let page = self.database.query_metadata(all, &self.query()?, &self.page()?)?;
                Ok(Reply::feed(property, &page))
            }
            _ => Err(method_not_allowed()),
        }
    }

    fn account(&self) -> Result<Reply> {
        if self.verb != Verb::Read {
            return Err(method_not_allowed());
        }
        // Clients send everything else to the address in this document, so it must be one that they can reach: the
        // one they used, unless the operator knows better.
        let endpoint = if let Some(endpoint) = self.advertised {
            endpoint.to_owned()
        } else {
            let origin = super::origin(self.parts, &self.connection);
            format!("{}/", origin.ok_or_else(|| Error::bad_request("The request has no Host header."))?)
        };
        let gateway_v2 = self.gateway_v2.and_then(|port| account::endpoint_of(port, &endpoint));
        let document = account::document(&endpoint, self.consistency, gateway_v2.as_deref());
        // Attachments are not supported, so media storage is zero.
        Ok(Reply::json(StatusCode::OK, document.to_json())
            .with("x-ms-max-media-storage-usage-mb", 0)
            .with("x-ms-media-storage-usage-mb", 0))
    }

    async fn databases(&self, receipt: &mut Receipt) -> Result<Reply> {
        match self.verb {
            Verb::Create => {
                // The account's limit on such changes applies before the work.
                self.database.admit_change(AccountChange::CreateDatabase)?;
                let created = self.database.create_database(receipt, &self.body, self.throughput()?).await?;
                Ok(Reply::metadata(&created))
            }
            _ => self.catalog_feed(receipt, "Databases", ResourceFeed::Databases),
        }
    }

    async fn database(&self, receipt: &mut Receipt, id: &str) -> Result<Reply> {
        match self.verb {
            Verb::Read => Ok(Reply::metadata(&self.database.read_database(receipt, id)?)),
            Verb::Delete => {
                self.database.delete_database(receipt, id, self.if_match()).await?;
                Ok(Reply::new(StatusCode::NO_CONTENT))
            }
            _ => Err(method_not_allowed()),
        }
    }

    async fn containers(&self, receipt: &mut Receipt, database: &str) -> Result<Reply> {
        match self.verb {
            Verb::Create => {
                let throughput = self.throughput()?;
                let is_old = headers::predates_partition_keys(&self.parts.headers);
                let definition = if is_old { with_system_key(&self.body) } else { self.body.clone() };
                self.database.admit_change(AccountChange::CreateContainer)?;
                let created =
                    self.database.create_container(receipt, database, &definition, throughput).await?;
                let reply = Reply::metadata(&created);
                let container = receipt.container.as_ref();
                // A container without throughput of its own shares its database's, which clients show.
                let shares = container.is_some_and(|own| self.database.container_throughput(own).is_none());
                Ok(if shares { reply.with(headers::SHARE_THROUGHPUT, "True") } else { reply })
            }
            _ => self.catalog_feed(receipt, "DocumentCollections", ResourceFeed::Containers(database)),
        }
    }

    async fn container(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        match self.verb {
            Verb::Read => self.read_container(receipt, at).await,
            Verb::Replace => {
                let replaced =
                    self.database.replace_container(receipt, at.pair(), &self.body, self.if_match()).await?;
                Ok(Reply::metadata(&replaced))
            }
            Verb::Delete => {
                self.database.delete_container(receipt, at.pair(), self.if_match()).await?;
                Ok(Reply::new(StatusCode::NO_CONTENT))
            }
            _ => Err(method_not_allowed()),
        }
    }

    async fn read_container(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        let mut container = self.database.read_container(receipt, &at.database, &at.container)?;
        let wants_quota = headers::flag(&self.parts.headers, headers::POPULATE_QUOTA);
        let wants_statistics = headers::flag(&self.parts.headers, headers::POPULATE_STATISTICS);
        // Before sizes are collected, which asks every partition.
        if self.header("if-none-match").is_some_and(|known| known == "*" || known == container.etag) {
            return Ok(Reply::new(StatusCode::NOT_MODIFIED).with_etag(&container.etag));
        }
        if !wants_quota && !wants_statistics {
            return Ok(Reply::metadata(&container));
        }
        if wants_statistics && let Some(object) = container.value.as_object_mut() {
            let view = self.database.container_view(&at.database, &at.container).await?;
            let statistics = view.partitions.iter().map(statistics_row).collect::<Vec<_>>();
            object.set("statistics", Value::from(statistics));
        }
        let reply = Reply::metadata(&container);
        if !wants_quota {
            return Ok(reply);
        }
        let usages = self.database.container_usage(&at.database, &at.container).await?;
        // All sizes of this header are in kilobytes.
        let bytes = kilobytes(usages.iter().map(|(_, usage)| usage.bytes).sum());
        let items: u64 = usages.iter().map(|(_, usage)| usage.items).sum();
        let scripts = self.script_usage(at)?;
        Ok(reply
            .with(headers::RESOURCE_QUOTA, format_args!("{}{SCRIPT_QUOTA}", item_quota(self.database.partition_bytes_max())))
            .with(headers::RESOURCE_USAGE, format!("documentSize=0;documentsSize={bytes};documentsCount={items};collectionSize={bytes};{scripts}"))
            // Lazy indexing is not mentioned, because no container supports it: client tests check its absence.
            .with("x-ms-documentdb-collection-index-transformation-progress", self.index_progress(at)?))
    }

    fn index_progress(&self, at: &ContainerPath) -> Result<u8> {
        let catalog = self.database.catalog();
        Ok(self.database.index_progress(catalog.container(&at.database, &at.container)?))
    }

    fn ranges(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        if self.verb != Verb::List {
            return Err(method_not_allowed());
        }
        // Clients ask with the etag of the ranges that they know, and get 304 until a split or merge changes them.
        match self.database.list_ranges(receipt, at.pair(), self.header("if-none-match"))? {
            RangesPage::NotModified { etag } => Ok(Reply::new(StatusCode::NOT_MODIFIED).with_etag(&etag)),
            RangesPage::Changed { etag, owner_rid, ranges } => {
                let page = MetadataPage { owner_rid, resources: ranges, continuation: None };
                Ok(Reply::feed("PartitionKeyRanges", &page).with_etag(&etag))
            }
        }
    }

    /// The address feed: where the requested ranges of a container are served in direct mode.
    fn addresses(&self, at: Option<&ContainerPath>) -> Result<Reply> {
        if self.verb != Verb::List {
            return Err(method_not_allowed());
        }
        let endpoint = self.direct.ok_or_else(|| {
            Error::not_implemented(
                "Direct mode is not served here. Please connect in gateway mode: ConnectionMode.Gateway in .NET, gatewayMode() in Java.",
            )
        })?;
        let host = super::host(self.parts);
        let host = host.ok_or_else(|| Error::bad_request("The request has no Host header."))?;
        // Without a container the account's own resources are meant, which have an address too.
        let Some(at) = at else {
            return Ok(Reply::json(StatusCode::OK, addresses::feed(None, endpoint, host)));
        };
        let catalog = self.database.catalog();
        let container = catalog.container(&at.database, &at.container)?;
        let wanted = self.parts.uri.query().and_then(|query| query_value(query, "$partitionKeyRangeIds"));
        // An id that is gone is left out; the client reads the ranges again and asks for their successors.
        let is_wanted = |range_id: &u32| match &wanted {
            None => true,
            Some(ids) => ids.split(',').any(|id| id.trim().parse() == Ok(*range_id)),
        };
        let ranges = container.partitions.iter().map(|partition| partition.range_id).filter(is_wanted);
        let ranges: Vec<u32> = ranges.collect();
        let feed = addresses::feed(Some((container.rid, &ranges)), endpoint, host);
        Ok(Reply::json(StatusCode::OK, feed))
    }

    async fn users(&self, receipt: &mut Receipt, database: &str) -> Result<Reply> {
        match self.verb {
            Verb::Create | Verb::Upsert => {
                let upsert = self.verb == Verb::Upsert;
                Ok(Reply::metadata(&self.database.create_user(receipt, database, &self.body, upsert).await?))
            }
            _ => self.catalog_feed(receipt, "Users", ResourceFeed::Users(database)),
        }
    }

    async fn user(&self, receipt: &mut Receipt, database: &str, user: &str) -> Result<Reply> {
        match self.verb {
            Verb::Read => Ok(Reply::metadata(&self.database.read_user(receipt, database, user)?)),
            Verb::Replace => {
                let at = (database, user);
                let replaced = self.database.replace_user(receipt, at, &self.body, self.if_match()).await?;
                Ok(Reply::metadata(&replaced))
            }
            Verb::Delete => {
                self.database.delete_user(receipt, (database, user), self.if_match()).await?;
                Ok(Reply::new(StatusCode::NO_CONTENT))
            }
            _ => Err(method_not_allowed()),
        }
    }

    async fn encryption_keys(&self, receipt: &mut Receipt, database: &str) -> Result<Reply> {
        match self.verb {
            Verb::Create => {
                let created = self.database.create_encryption_key(receipt, database, &self.body).await?;
                Ok(Reply::metadata(&created))
            }
            _ => self.catalog_feed(receipt, "ClientEncryptionKeys", ResourceFeed::EncryptionKeys(database)),
        }
    }

    async fn encryption_key(&self, receipt: &mut Receipt, at: (&str, &str)) -> Result<Reply> {
        match self.verb {
            Verb::Read => {
                let key = self.database.read_encryption_key(receipt, at)?;
                // Clients whose wrapping key was revoked use this to check whether it has been rewrapped.
                if self.header("if-none-match") == Some(&key.etag) {
                    return Ok(Reply::new(StatusCode::NOT_MODIFIED).with_etag(&key.etag));
                }
                Ok(Reply::metadata(&key))
            }
            Verb::Replace => {
                let if_match = self.if_match();
                let replaced =
                    self.database.replace_encryption_key(receipt, at, &self.body, if_match).await?;
                Ok(Reply::metadata(&replaced))
            }
            _ => Err(method_not_allowed()),
        }
    }

    fn token_seconds(&self) -> Result<Option<i64>> {
        headers::number(&self.parts.headers, headers::TOKEN_SECONDS)
    }

    async fn permissions(&self, receipt: &mut Receipt, database: &str, user: &str) -> Result<Reply> {
        // How long the tokens in the response are to be valid.
        let (at, seconds) = ((database, user), self.token_seconds()?);
        match self.verb {
            Verb::Create | Verb::Upsert => {
                let upsert = self.verb == Verb::Upsert;
                let created =
                    self.database.create_permission(receipt, at, &self.body, upsert, seconds).await?;
                Ok(Reply::metadata(&created))
            }
            _ => self.feed("Permissions", |page| self.database.list_permissions(receipt, at, page, seconds)),
        }
    }

    async fn permission(
        &self,
        receipt: &mut Receipt,
        database: &str,
        user: &str,
        permission: &str,
    ) -> Result<Reply> {
        let (at, seconds) = ((database, user, permission), self.token_seconds()?);
        match self.verb {
            Verb::Read => Ok(Reply::metadata(&self.database.read_permission(receipt, at, seconds)?)),
            Verb::Replace => {
                let if_match = self.if_match();
                let replaced =
                    self.database.replace_permission(receipt, at, &self.body, if_match, seconds).await?;
                Ok(Reply::metadata(&replaced))
            }
            Verb::Delete => {
                self.database.delete_permission(receipt, at, self.if_match()).await?;
                Ok(Reply::new(StatusCode::NO_CONTENT))
            }
            _ => Err(method_not_allowed()),
        }
    }

    fn offers(&self, receipt: &mut Receipt) -> Result<Reply> {
        self.feed("Offers", |page| self.database.list_offers(receipt, page))
    }

    async fn offer(&self, receipt: &mut Receipt, rid: &str) -> Result<Reply> {
        match self.verb {
            Verb::Read => Ok(offer_reply(&self.database.read_offer(receipt, rid)?)),
            Verb::Replace => {
                let to_autoscale = headers::flag(&self.parts.headers, headers::MIGRATE_TO_AUTOSCALE);
                let to_manual = headers::flag(&self.parts.headers, headers::MIGRATE_TO_MANUAL);
                let migration = match (to_autoscale, to_manual) {
                    (true, true) => {
                        return Err(Error::bad_request(
                            "An offer cannot be migrated to autoscale and to manual throughput at once.",
                        ));
                    }
                    (true, false) => Some(Migration::ToAutoscale),
                    (false, true) => Some(Migration::ToManual),
                    (false, false) => None,
                };
                let if_match = self.if_match();
                self.database.admit_change(AccountChange::ReplaceOffer)?;
                let mut offer =
                    self.database.replace_offer(receipt, rid, &self.body, migration, if_match).await?;
                // A larger throughput may need splits first.
                if offer.pending {
                    offer = self.database.wait_for_offer(rid, OFFER_WAIT_MAX).await?;
                }
                let mut reply = offer_reply(&offer);
                if offer.pending {
                    reply.status = StatusCode::ACCEPTED;
                }
                Ok(reply)
            }
            _ => Err(method_not_allowed()),
        }
    }

    /// Conflicts arise only with multi-region writes; here there is one region.
    fn conflicts(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        let container = self.database.read_container(receipt, &at.database, &at.container)?;
        let owner_rid = container.value.get("_rid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let sent = &self.parts.headers;
        let is_scoped = headers::flag(sent, headers::ENABLE_CROSS_PARTITION)
            || headers::partition_key(sent)?.is_some()
            || headers::range_id(sent)?.is_some();
        match self.verb {
            Verb::Query if !is_scoped => Err(Error::bad_request(
                "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
            )),
            Verb::List | Verb::Query => {
                Ok(Reply::feed("Conflicts", &MetadataPage { owner_rid, ..MetadataPage::default() }))
            }
            _ => Err(method_not_allowed()),
        }
    }

    fn conflict(&self, at: &ContainerPath) -> Result<Reply> {
        // The feed is always empty, so the container is all that can be found.
        self.database.catalog().container(&at.database, &at.container)?;
        match self.verb {
            Verb::Read | Verb::Delete => Err(Error::new(
                orrery_model::ErrorKind::NotFound,
                "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found",
            )),
            _ => Err(method_not_allowed()),
        }
    }
}

/// The definition of a container created with an API version without partition keys. It gets the service's system key,
/// a property that no item has, so all items have the undefined key.
fn with_system_key(definition: &Bytes) -> Bytes {
    // The database reports what is wrong with it.
    let Ok(Value::Object(mut container)) = orrery_model::value::parse(definition) else {
        return definition.clone();
    };
    if container.contains("partitionKey") {
        return definition.clone();
    }
    let mut key = orrery_model::Object::new();
    key.set("paths", Value::from(vec![Value::from("/_partitionKey")]));
    key.set("kind", Value::from("Hash"));
    key.set("systemKey", Value::from(true));
    container.set("partitionKey", Value::from(key));
    Value::from(container).to_json().into()
}

fn offer_reply(offer: &OfferReply) -> Reply {
    Reply::metadata(&offer.reply)
        .with("x-ms-cosmos-min-throughput", offer.minimum)
        .with("x-ms-offer-replace-pending", if offer.pending { "True" } else { "False" })
}

/// A partition with its largest keys.
fn statistics_row(partition: &PartitionView) -> Value {
    let keys = partition.largest.iter().filter_map(|large| {
        let mut row = orrery_model::Object::new();
        row.set("partitionKey", orrery_model::value::parse(large.key.as_bytes()).ok()?);
        row.set("sizeInKB", Value::from(kilobytes(large.bytes)));
        Some(Value::from(row))
    });
    let mut row = orrery_model::Object::new();
    row.set("id", Value::from(partition.bounds.range_id.to_string()));
    row.set("sizeInKB", Value::from(kilobytes(partition.bytes)));
    row.set("documentCount", Value::from(i64::try_from(partition.items).unwrap_or(i64::MAX)));
    row.set("partitionKeys", Value::from(keys.collect::<Vec<_>>()));
    row.into()
}

fn kilobytes(bytes: u64) -> i64 {
    i64::try_from(bytes.div_ceil(1024)).unwrap_or(i64::MAX)
}
