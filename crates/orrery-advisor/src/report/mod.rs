//! Reports as text, JSON and a self-contained HTML file with plots.

mod bill;
mod html;
mod json;
mod page;
mod simulation;
mod svg;
mod text;
mod what_if;

pub use html::{html, html_with};
pub use json::{json, plan_json};
pub use simulation::{simulation_html, simulation_json, simulation_text};
pub(crate) use svg::escape;
pub use text::{plan_text, service_text, text};
pub use what_if::{what_if_json, what_if_text};
