//! The shell's own help.

pub(super) const HELP: &str = "\
Queries run when they are complete; a semicolon or an empty line also ends them.
  SELECT …               run a query on the container in use

Places
  ls [DATABASE]          list databases, containers, or the items of the container in use
  use DB.CONTAINER       enter a container; use DB enters a database, use alone leaves

Items
  cat ID                 show an item
  put JSON               write an item
  rm ID                  delete an item
  .import FILE           import a file (JSON lines, JSON array, CSV; plain or gzip)
  .export FILE           export all items as JSON lines

Queries
  .mode MODE             table, json, jsonl, csv or chart
  .key KEY               restrict queries to one partition key; .key alone lifts the restriction
  .charge on|off         show the request units of each query
  .explain QUERY         show how a query is executed
  .partitions            show the physical partitions of the container
  .schema                show the properties of a sample of items

  .help, .exit           Tab completes; Ctrl-C cancels a query, Ctrl-D exits
";
