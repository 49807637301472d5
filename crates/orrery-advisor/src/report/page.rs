//! The frame of an HTML report: one file without external resources; its only script copies definitions.

use super::svg::escape;

const STYLE: &str = "\
:root{--ink:#1c2330;--dim:#5b6575;--page:#fbfbf9;--card:#fff;--edge:#e2e4e8;--blue:#2f6fb5;--hot:#c8452f;--green:#2c8a57;--gold:#b98417}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ec;--dim:#9aa4b2;--page:#14171c;--card:#1c2128;--edge:#323842;--blue:#6aa7e8;--hot:#ee7d66;--green:#63c18f;--gold:#e0b252}}\
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:34px 0 10px}h3{font-size:16px;margin:0 0 8px}\
p{margin:6px 0}.dim,.label{color:var(--dim);fill:var(--dim)}\
.card{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:16px 18px;margin:14px 0}\
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}\
th{text-align:right;color:var(--dim);font-weight:600;border-bottom:1px solid var(--edge);padding:5px 8px}\
td{text-align:right;padding:5px 8px;border-bottom:1px solid var(--edge);white-space:nowrap}th:nth-child(2),td:nth-child(2){text-align:left}td:nth-child(2){white-space:normal;overflow-wrap:anywhere;min-width:9em}\
tr.best td{font-weight:600}.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(360px,100%),1fr));gap:18px 22px}\
figure{margin:0}figcaption{color:var(--dim);font-size:13px;margin-bottom:2px}svg{width:100%;height:auto;display:block}\
svg text{font:13px system-ui,sans-serif}.axis{stroke:var(--dim)}.grid{stroke:var(--edge)}.mark{stroke:var(--hot);stroke-dasharray:4 3}\
.bar{fill:var(--blue)}.bar.hot,.heat{fill:var(--hot)}.line{fill:none;stroke-width:2}\
.line.s0{stroke:var(--blue)}.line.s1{stroke:var(--hot)}.line.s2{stroke:var(--green)}.line.s3{stroke:var(--gold)}\
.dot.s0,tspan.s0{fill:var(--blue)}.dot.s1,tspan.s1{fill:var(--hot)}.dot.s2,tspan.s2{fill:var(--green)}.dot.s3,tspan.s3{fill:var(--gold)}\
ul{margin:6px 0 10px;padding-left:0;list-style:none}li{padding-left:20px;position:relative}li:before{position:absolute;left:2px;font-weight:700}\
li.good:before{content:'+';color:var(--green)}li.bad:before{content:'\u{2212}';color:var(--hot)}\
code{font:12.5px ui-monospace,monospace;background:var(--page);border:1px solid var(--edge);border-radius:4px;padding:1px 5px;overflow-wrap:anywhere}\
button.copy{font:12px system-ui,sans-serif;color:var(--ink);background:var(--card);border:1px solid var(--edge);border-radius:4px;padding:2px 8px;margin-left:6px;cursor:pointer}\
@media(max-width:640px){main{padding:16px 10px 40px}.card{padding:12px}table,tr,td{display:block}tr:first-child{display:none}\
tr{border-bottom:1px solid var(--edge);padding:8px 0}td{display:flex;justify-content:space-between;gap:16px;border:0;padding:2px 0;white-space:normal;text-align:right!important}\
td:before{content:attr(data-label);color:var(--dim)}td:empty{display:none}}";

/// Copies the text of the element before a button.
const SCRIPT: &str = "document.addEventListener('click',async e=>{const b=e.target.closest('button.copy');if(!b)return;const c=b.previousElementSibling;\
try{await navigator.clipboard.writeText(c.textContent)}catch{const s=getSelection();s.selectAllChildren(c);document.execCommand('copy');s.removeAllRanges()}\
b.textContent='Copied';setTimeout(()=>{b.textContent='Copy'},2000)})";

/// Wraps a body into a complete HTML document.
pub(super) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{STYLE}</style></head>\n<body><main>\n{body}</main><script>{SCRIPT}</script></body></html>\n",
        escape(title)
    )
}

/// A definition with a button that copies it.
pub(super) fn copied(text: &str) -> String {
    format!("<code>{}</code><button type=\"button\" class=\"copy\">Copy</button>", escape(text))
}

/// A plot with its caption.
pub(super) fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>{svg}</figure>\n", escape(caption))
}

/// A table whose first row is the header.
pub(super) fn table(rows: &[Vec<String>], best: Option<usize>) -> String {
    let mut out = String::from("<div class=\"scroll\"><table>");
    for (at, row) in rows.iter().enumerate() {
        let class = if at > 0 && best == Some(at - 1) { " class=\"best\"" } else { "" };
        let tag = if at == 0 { "th" } else { "td" };
        out.push_str("<tr");
        out.push_str(class);
        out.push('>');
        for (cell, title) in row.iter().zip(&rows[0]) {
            // On narrow screens each cell shows its title.
            let label = if at > 0 { format!(" data-label=\"{}\"", escape(title)) } else { String::new() };
            out.push_str(&format!("<{tag}{label}>{}</{tag}>", escape(cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    out
}
