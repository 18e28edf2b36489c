//! Chat templates as transformers runs them (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls), over
//! minijinja, with limits on work, depth and output.
//!
//! Messages are untrusted. [`Chat::render_safe`] hides every control spelling inside them behind a private character while
//! the template runs, then puts it back and reports where: those places are plain text for the tokenizer. So no message can
//! end its own turn, whatever the template does with it (trim, split, JSON).
use crate::clock::Clock;
use crate::confine::{self, Limits, Stop, STACKS};
use crate::ffi::{err, give, guard, object, text, Sink, R};
use crate::pyjson::{dumps, measure, str_of, Style};
use crate::shape;
use crate::tok::Tok;
use minijinja::value::{Kwargs, Serde, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use serde_json::{Map, Value as Json};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

// Steps, each worth 64 bytes of text; real templates use thousands. Data gains at most one level of nesting for 1.5 steps, so
// the deep stack holds any recursion over it.
const FUEL: u64 = 4_000_000;
const DEPTH: usize = 200;
const MAX_OUTPUT_BYTES: usize = 64 << 20;
const MAX_SOURCE_BYTES: usize = 1 << 20;
const LIMITS: Limits = Limits { bytes: 256 << 20, time: Duration::from_secs(20) };
const MAX_LOST: usize = 4; // lost threads after which a template is refused

pub struct Chat {
    env: Environment<'static>,
    lost: AtomicUsize,
}

fn refuse(e: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, e.to_string())
}

/// Refuses a value whose text would be too long or too deep, and pays for walking it. Values may be lazy and share parts, so
/// their text can be larger than memory.
fn weigh(state: &State, v: &Value) -> Result<(), Error> {
    let mut left = MAX_OUTPUT_BYTES;
    measure(v, 0, &mut left).map_err(refuse)?;
    state.consume_fuel(((MAX_OUTPUT_BYTES - left) / 64) as u64)
}

/// str(v), bounded.
fn text_of(state: &State, v: &Value) -> Result<String, Error> {
    if v.kind() != ValueKind::String {
        weigh(state, v)?;
    }
    let mut s = String::new();
    str_of(v, &mut s);
    Ok(s)
}

/// json.dumps as transformers' tojson calls it.
fn tojson(state: &State, v: Value, indent: Option<Value>, kw: Kwargs) -> Result<Value, Error> {
    if v.kind() == ValueKind::Undefined {
        return Err(refuse("tojson: the value is undefined"));
    }
    let indent = match indent {
        Some(i) => Some(i),
        None => kw.get::<Option<Value>>("indent")?,
    };
    let mut style = Style {
        ascii: kw.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: kw.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ..Default::default()
    };
    if let Some(i) = indent.filter(|i| !i.is_none() && !i.is_undefined()) {
        style.item = ",".into();
        style.indent = Some(match i.as_str() {
            Some(s) => s.chars().take(64).collect(),
            None => " ".repeat(i.as_usize().unwrap_or(0).min(64)),
        });
    }
    if let Some(s) = kw.get::<Option<Vec<String>>>("separators")? {
        let [item, key] = <[String; 2]>::try_from(s).map_err(|_| refuse("tojson: separators is a pair"))?;
        (style.item, style.key) = (item, key);
    }
    kw.assert_all_used()?;
    weigh(state, &v)?;
    let json = serde_json::to_value(&v).map_err(refuse)?;
    let mut out = String::new();
    dumps(&json, &style, 0, &mut out);
    Ok(Value::from(out))
}

/// transformers' `{% generation %}` marks what the model wrote, for training masks. Here it is a scope that prints its body.
fn replace_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        out.push_str(&rest[..at]);
        let tag = &rest[at..];
        let Some(len) = tag[2..].find("%}").map(|e| e + 4) else {
            rest = tag; // no tag ends here: the engine will say so, or it is inside a string
            break;
        };
        let inner = &tag[2..len - 2];
        let word = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        match word {
            "generation" => out.push_str(&tag[..len].replace("generation", "with")),
            "endgeneration" => out.push_str(&tag[..len].replace("endgeneration", "endwith")),
            _ => {
                // Only the opening is consumed: the tag may be an example inside a string or comment.
                out.push_str("{%");
                rest = &tag[2..];
                continue;
            }
        }
        rest = &tag[len..];
    }
    out.push_str(rest);
    out
}

/// Output that stops at a limit instead of filling memory.
struct Bounded(Vec<u8>);
impl std::io::Write for Bounded {
    fn write(&mut self, b: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + b.len() > MAX_OUTPUT_BYTES {
            return Err(std::io::Error::other(format!("the text exceeds {} MiB", MAX_OUTPUT_BYTES >> 20)));
        }
        self.0.extend_from_slice(b);
        Ok(b.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The innermost cause is what the author of the template wants to read.
fn explain(e: &Error) -> String {
    let line = e.line().map_or(String::new(), |l| format!("line {l}: "));
    let mut message = e.detail().map_or_else(
        || e.kind().to_string(),
        |d| if e.kind() == ErrorKind::InvalidOperation { d.into() } else { format!("{}: {d}", e.kind()) },
    );
    let mut source = std::error::Error::source(e);
    while let Some(s) = source {
        message = format!("{message}: {s}");
        source = s.source();
    }
    format!("template: {line}{message}")
}

impl Chat {
    pub fn new(source: &str) -> R<Chat> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(format!("template: {} bytes exceed the limit of {MAX_SOURCE_BYTES}", source.len()));
        }
        let source = source.to_string();
        let env = confine::run(LIMITS, move |_| Chat::compile(&source)).map_err(|s| match s {
            Stop::Failed(e) => e,
            Stop::Lost(e) => format!("template: {e}"),
        })?;
        Ok(Chat { env, lost: AtomicUsize::new(0) })
    }

    fn compile(source: &str) -> R<Environment<'static>> {
        let mut env = Environment::new();
        let syntax = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(err)?;
        let source = replace_generation(source);
        shape::check(&source, syntax.clone()).map_err(|e| format!("template: {e}"))?;
        env.set_syntax(syntax);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.set_formatter(|out, state: &mut State, v: &Value| out.write_str(&text_of(state, v)?).map_err(Error::from));
        env.set_recursion_limit(DEPTH);
        env.add_filter("tojson", tojson);
        env.add_filter("string", |state: &State, v: Value| text_of(state, &v));
        // minijinja calls none iterable; Python does not, and templates test `tools` that way.
        env.add_test("iterable", |v: &Value| !v.is_none() && v.try_iter().is_ok());
        env.add_function("raise_exception", |state: &State, m: Value| -> Result<Value, Error> { Err(refuse(text_of(state, &m)?)) });
        env.add_template_owned("chat", source).map_err(|e| explain(&e))?;
        Ok(env)
    }

    /// `context` is what the template sees; `now` feeds strftime_now.
    fn render(&self, context: &Json, now: &str) -> R<String> {
        const HEAVY: &str = "template: refused, its work exceeds the limits again and again";
        if self.lost.load(Ordering::Relaxed) >= MAX_LOST {
            return Err(HEAVY.into());
        }
        let clock = Clock::parse(now)?;
        let mut env = self.env.clone();
        env.add_function("strftime_now", move |f: &str| clock.format(f).map_err(refuse));
        let value = Value::from(Serde(context));
        confine::run(LIMITS, move |stack| {
            env.set_fuel(Some(FUEL / (STACKS[0] / stack) as u64));
            let mut out = Bounded(vec![]);
            let t = env.get_template("chat").map_err(|e| explain(&e))?;
            t.render_captured_to(value, &mut out).map_err(|e| explain(&e))?;
            String::from_utf8(out.0).map_err(err)
        })
        .map_err(|s| match s {
            Stop::Failed(e) => e,
            Stop::Lost(e) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                format!("template: {e}")
            }
        })
    }
}

/// messages, tools (may be empty: none), vars → the template's context and the clock.
fn context(messages: &str, tools: &str, vars: &str) -> R<(Map<String, Json>, String)> {
    let parse = |what: &str, s: &str| serde_json::from_str::<Json>(s).map_err(|e| format!("{what}: {e}"));
    let mut all = match if vars.is_empty() { Json::Object(Map::new()) } else { parse("vars", vars)? } {
        Json::Object(o) => o,
        _ => return Err("vars: not a JSON object".into()),
    };
    let now = match all.remove("now") {
        Some(Json::String(s)) => s,
        Some(_) => return Err("vars: now is not a string".into()),
        None => return Err("vars: now is missing".into()),
    };
    let messages = parse("messages", messages)?;
    if !messages.is_array() {
        return Err("messages: not a JSON array".into());
    }
    all.insert("messages".into(), messages);
    // As in transformers: both names always exist, none when there is nothing.
    let tools = if tools.is_empty() { Json::Null } else { parse("tools", tools)? };
    if !matches!(tools, Json::Null | Json::Array(_)) {
        return Err("tools: neither null nor a JSON array".into());
    }
    all.insert("tools".into(), tools);
    all.entry("documents").or_insert(Json::Null);
    Ok((all, now))
}

/// Private characters that stand for control spellings while a template runs.
struct Veil {
    free: Box<dyn Iterator<Item = char>>,
    by_text: HashMap<String, char>,
    by_char: HashMap<char, String>,
}

impl Veil {
    /// `used`: text in which no stand-in may occur already.
    fn new(used: &[&str]) -> Veil {
        let taken: std::collections::HashSet<char> = used.iter().flat_map(|s| s.chars()).filter(|c| *c >= '\u{100000}').collect();
        let free = Box::new(('\u{100000}'..='\u{10FFFD}').filter(move |c| !taken.contains(c)));
        Veil { free, by_text: HashMap::new(), by_char: HashMap::new() }
    }
    fn stand_in(&mut self, spelling: &str) -> R<char> {
        if let Some(&c) = self.by_text.get(spelling) {
            return Ok(c);
        }
        let c = self.free.next().ok_or("messages: too many different private characters")?;
        self.by_text.insert(spelling.into(), c);
        self.by_char.insert(c, spelling.into());
        Ok(c)
    }
    fn hide(&mut self, tok: &Tok, s: &str) -> R<Option<String>> {
        let spans = tok.control_spans(s);
        if spans.is_empty() {
            return Ok(None);
        }
        let (mut out, mut done) = (String::with_capacity(s.len()), 0);
        for (start, end) in spans {
            out.push_str(&s[done..start]);
            out.push(self.stand_in(&s[start..end])?);
            done = end;
        }
        out.push_str(&s[done..]);
        Ok(Some(out))
    }
    fn hide_all(&mut self, tok: &Tok, v: &mut Json) -> R<()> {
        match v {
            Json::String(s) => {
                if let Some(hidden) = self.hide(tok, s)? {
                    *s = hidden;
                }
            }
            Json::Array(a) => a.iter_mut().try_for_each(|v| self.hide_all(tok, v))?,
            Json::Object(o) => {
                for (k, mut v) in std::mem::take(o) {
                    self.hide_all(tok, &mut v)?;
                    let k = self.hide(tok, &k)?.unwrap_or(k);
                    o.insert(k, v);
                }
            }
            _ => {}
        }
        Ok(())
    }
    /// The text with the spellings back, and their byte ranges.
    fn lift(&self, s: &str) -> (String, Vec<usize>) {
        let (mut out, mut ranges) = (String::with_capacity(s.len()), vec![]);
        for c in s.chars() {
            match self.by_char.get(&c) {
                Some(spelling) => {
                    ranges.push(out.len());
                    out.push_str(spelling);
                    ranges.push(out.len());
                }
                None => out.push(c),
            }
        }
        (out, ranges)
    }
}

impl Chat {
    pub fn render_plain(&self, messages: &str, tools: &str, vars: &str) -> R<String> {
        let (all, now) = context(messages, tools, vars)?;
        self.render(&Json::Object(all), &now)
    }
    /// The text, and flat pairs of byte offsets of the spellings that came from messages or tools.
    pub fn render_safe(&self, tok: &Tok, messages: &str, tools: &str, vars: &str) -> R<(String, Vec<usize>)> {
        let (mut all, now) = context(messages, tools, vars)?;
        // The values, not the JSON text: a private character may be written as an escape there.
        let mut veil = Veil::new(&[&Json::Object(all.clone()).to_string()]);
        for key in ["messages", "tools"] {
            if let Some(v) = all.get_mut(key) {
                veil.hide_all(tok, v)?;
            }
        }
        Ok(veil.lift(&self.render(&Json::Object(all), &now)?))
    }
}

/// Compiles a template. Null: see `slm_text_error`.
///
/// # Safety
/// Pointers are valid for their lengths.
#[no_mangle]
pub unsafe extern "C" fn slm_chat_new(source: *const u8, n: usize) -> *mut Chat {
    guard(std::ptr::null_mut(), || Ok(Box::into_raw(Box::new(Chat::new(text(source, n)?)?))))
}
/// # Safety
/// `c` comes from this library and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn slm_chat_free(c: *mut Chat) {
    guard((), || {
        if !c.is_null() {
            drop(Box::from_raw(c));
        }
        Ok(())
    })
}

/// A borrowed UTF-8 text.
#[repr(C)]
pub struct Text {
    pub data: *const u8,
    pub n: usize,
}
/// JSON documents; `tools` may be empty. `vars` must hold "now".
#[repr(C)]
pub struct Inputs {
    pub messages: Text,
    pub tools: Text,
    pub vars: Text,
}

/// Renders; bytes of the text go to `sink`. With a tokenizer, control spellings of messages and tools are made harmless and
/// their byte offsets (pairs of size_t) go to `ranges`. False: see `slm_text_error`.
///
/// # Safety
/// All pointers are valid, `c` is live, `tok` is null or live.
#[no_mangle]
pub unsafe extern "C" fn slm_chat_render(
    c: *const Chat,
    tok: *const Tok,
    inputs: *const Inputs,
    sink: Sink,
    ranges: Sink,
    context: *mut c_void,
) -> bool {
    guard(false, || {
        let (c, i) = (object(c)?, object(inputs)?);
        let messages = text(i.messages.data, i.messages.n)?;
        let tools = text(i.tools.data, i.tools.n)?;
        let vars = text(i.vars.data, i.vars.n)?;
        let (out, plain) = match tok.as_ref() {
            Some(t) => c.render_safe(t, messages, tools, vars)?,
            None => (c.render_plain(messages, tools, vars)?, vec![]),
        };
        give(sink, context, out.as_bytes());
        give(ranges, context, &plain);
        Ok(true)
    })
}
