//! Values as Python writes them: `json.dumps` for the `tojson` filter, `str()` for output.
//!
//! transformers replaces Jinja2's `tojson` by json.dumps without HTML escapes; templates were written against its exact
//! spacing, so ", " and ": ", float spellings and indentation matter to the ids.
use minijinja::value::{Value, ValueKind};
use serde_json::Value as Json;

/// Levels of nesting that are written; messages nest a few.
const MAX_DEPTH: usize = 200;

/// json.dumps options that templates use.
pub struct Style {
    pub indent: Option<String>,
    pub ascii: bool,
    pub sort_keys: bool,
    pub item: String,
    pub key: String,
}

impl Default for Style {
    fn default() -> Self {
        Style { indent: None, ascii: false, sort_keys: false, item: ", ".into(), key: ": ".into() }
    }
}

/// repr() of a Python float: shortest digits, exponent form below 1e-4 and from 1e16 on.
pub fn float(f: f64) -> String {
    if f.is_nan() {
        return "NaN".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{f:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let e: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&e) {
        let plain = format!("{f}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    format!("{digits}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs())
}

fn string(s: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if ascii && (c as u32) >= 0x7F => {
                if c == '\u{7f}' {
                    out.push(c);
                    continue;
                }
                let mut units = [0u16; 2];
                for u in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{u:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// json.dumps(v).
pub fn dumps(v: &Json, style: &Style, depth: usize, out: &mut String) {
    match v {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (None, None, Some(f)) => out.push_str(&float(f)),
            _ => out.push_str(&n.to_string()),
        },
        Json::String(s) => string(s, style.ascii, out),
        Json::Array(a) => {
            let items = a.iter().map(|v| (None, v)).collect::<Vec<_>>();
            container(&items, style, depth, out, ['[', ']']);
        }
        Json::Object(o) => {
            let mut items: Vec<_> = o.iter().map(|(k, v)| (Some(k.as_str()), v)).collect();
            if style.sort_keys {
                items.sort_by(|a, b| a.0.cmp(&b.0));
            }
            container(&items, style, depth, out, ['{', '}']);
        }
    }
}

fn container(items: &[(Option<&str>, &Json)], style: &Style, depth: usize, out: &mut String, brackets: [char; 2]) {
    out.push(brackets[0]);
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    };
    for (i, (k, v)) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(&style.item);
        }
        line(depth + 1, out);
        if let Some(k) = k {
            string(k, style.ascii, out);
            out.push_str(&style.key);
        }
        dumps(v, style, depth + 1, out);
    }
    if !items.is_empty() {
        line(depth, out);
    }
    out.push(brackets[1]);
}

/// Takes about the bytes of a value's text from `left`; an error where they do not suffice or the value nests too deep.
pub fn measure(v: &Value, depth: usize, left: &mut usize) -> Result<(), String> {
    const PER_ITEM: usize = 16;
    if depth > MAX_DEPTH {
        return Err(format!("the value exceeds {MAX_DEPTH} levels of nesting"));
    }
    let bytes = PER_ITEM + v.as_str().map_or(0, str::len);
    *left = left.checked_sub(bytes).ok_or("the text of the value exceeds the limit")?;
    match v.kind() {
        ValueKind::Seq | ValueKind::Iterable => v.try_iter().into_iter().flatten().try_for_each(|item| measure(&item, depth + 1, left)),
        ValueKind::Map => v.try_iter().into_iter().flatten().try_for_each(|key| {
            measure(&key, depth + 1, left)?;
            measure(&v.get_item(&key).unwrap_or(Value::UNDEFINED), depth + 1, left)
        }),
        _ => Ok(()),
    }
}

/// str(v) of the Python object a value stands for.
pub fn str_of(v: &Value, out: &mut String) {
    match v.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => out.push_str(v.as_str().unwrap_or("")),
        _ => repr(v, out),
    }
}

fn repr(v: &Value, out: &mut String) {
    match v.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Bool => out.push_str(if v.is_true() { "True" } else { "False" }),
        ValueKind::Number if !v.is_integer() => match f64::try_from(v.clone()) {
            Ok(f) if f.is_nan() => out.push_str("nan"),
            Ok(f) if f.is_infinite() => out.push_str(if f > 0.0 { "inf" } else { "-inf" }),
            Ok(f) => out.push_str(&float(f)),
            Err(_) => out.push_str(&v.to_string()),
        },
        ValueKind::String => quote(v.as_str().unwrap_or(""), out),
        ValueKind::Seq => {
            out.push('[');
            for (i, item) in v.try_iter().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(&item, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in v.try_iter().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(&key, out);
                out.push_str(": ");
                repr(&v.get_item(&key).unwrap_or(Value::UNDEFINED), out);
            }
            out.push('}');
        }
        _ => out.push_str(&v.to_string()),
    }
}

/// repr() of a Python string.
fn quote(s: &str, out: &mut String) {
    let q = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(q);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == q => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(q);
}
