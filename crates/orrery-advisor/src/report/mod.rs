//! Reports as text, JSON and a self-contained HTML file with plots.

mod html;
mod json;
mod page;
mod simulation;
mod svg;
mod text;

pub use html::html;
pub use json::{json, plan_json};
pub use simulation::{simulation_html, simulation_json, simulation_text};
pub use text::{plan_text, text};
