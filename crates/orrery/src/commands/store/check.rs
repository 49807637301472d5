//! `orrery store check`: verifies a data directory that no server uses.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use orrery_db::{StoreCheck, check_store};
use orrery_env::SystemEnv;
use orrery_model::{Object, Value};
use orrery_storage::{Embedded, EmbeddedOptions, PartitionStore};

use crate::client::block_on;
use crate::failure::Failure;
use crate::io::{Output, count, print};

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// The data directory.
    #[arg(long, value_name = "DIRECTORY")]
    data: PathBuf,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn run(arguments: &CheckArguments, output: &mut dyn Write) -> Result<(), Failure> {
    let directory = arguments.data.join("store");
    if !directory.is_dir() {
        return Err(Failure::refused(format!(
            "{} is not a data directory: it has no directory `store`",
            arguments.data.display()
        )));
    }
    let check = block_on(async {
        // Opening verifies the list of tables, all tables, and the journals, which it replays.
        let options = EmbeddedOptions { verify_tables: true, ..EmbeddedOptions::default() };
        let store = Embedded::open(&directory, options).map_err(Failure::refused)?;
        let store: Arc<dyn PartitionStore> = Arc::new(store);
        let check = check_store(Arc::clone(&store), Arc::new(SystemEnv)).await.map_err(Failure::refused);
        store.close().await.map_err(Failure::refused)?;
        check
    })?;
    print(output, &arguments.output.render(&answer(&check), || text(&check)))?;
    match check.problems_total {
        0 => Ok(()),
        problems => Err(Failure::refused(format!(
            "{} found: keep a copy of the directory, and restore a backup",
            count(problems, "problem")
        ))),
    }
}

fn answer(check: &StoreCheck) -> Value {
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let mut object = Object::new();
    object.set("containers", number(check.containers));
    object.set("partitions", number(check.partitions));
    object.set("logicalPartitions", number(check.logical_partitions));
    object.set("items", number(check.items));
    object.set("indexEntries", number(check.index_entries));
    object.set("problemsTotal", number(check.problems_total));
    object.set(
        "problems",
        check.problems.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>().into(),
    );
    object.into()
}

fn text(check: &StoreCheck) -> String {
    let parts = [
        count(check.containers, "container"),
        count(check.partitions, "partition"),
        count(check.logical_partitions, "logical partition"),
        count(check.items, "item"),
    ];
    let entries = match check.index_entries {
        1 => "1 index entry".to_owned(),
        entries => format!("{entries} index entries"),
    };
    let mut lines = check.problems.clone();
    lines.push(format!("checked all tables and journals, {}, {entries}\n", parts.join(", ")));
    lines.join("\n")
}
