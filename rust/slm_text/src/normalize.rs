//! The normalizer as a list of steps, each held to a bound on how much the text may grow.
//!
//! A file may chain replacements that multiply the text (ten times "a" by a thousand of them); the growth of a step is known
//! before it runs, so it is refused instead of filling memory.
use crate::ffi::R;
use serde_json::Value;
use tokenizers::tokenizer::pattern::Pattern as _;
use tokenizers::utils::SysRegex;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// Published normalizers at most quadruple a text; Unicode's own compatibility forms make 11 bytes of one.
const MAX_GROWTH: usize = 64;
const MIN_ROOM: usize = 64 << 10;

/// What a step may add.
enum Growth {
    Unicode,
    /// Every occurrence of the string becomes this many bytes.
    Each(String, usize),
    /// Any place may become this many bytes.
    Anywhere(usize),
    Once(usize),
}

pub struct Steps(Vec<(NormalizerWrapper, Growth)>);

impl From<NormalizerWrapper> for Steps {
    /// For normalizers of our own making.
    fn from(n: NormalizerWrapper) -> Steps {
        Steps(vec![(n, Growth::Unicode)])
    }
}

/// Whether a regular expression matches between any two characters; the crate's offsets break there.
fn matches_nothing(pattern: &str) -> bool {
    let empty = |r: SysRegex| (&r).find_matches("\u{1}").is_ok_and(|m| m.iter().any(|((a, b), hit)| *hit && a == b));
    SysRegex::new(pattern).is_ok_and(empty)
}

fn growth(step: &Value) -> R<Growth> {
    let text = |key: &str| step.get(key).and_then(Value::as_str).map_or(0, str::len);
    Ok(match step.get("type").and_then(Value::as_str) {
        Some("Prepend") => Growth::Once(text("prepend")),
        Some("Replace") => {
            let pattern = |key: &str| step.get("pattern").and_then(|p| p.get(key)).and_then(Value::as_str);
            if pattern("String") == Some("") || pattern("Regex").is_some_and(matches_nothing) {
                return Err("tokenizer.json: normalizer: the pattern of a Replace matches the empty text".into());
            }
            pattern("String").map_or(Growth::Anywhere(text("content")), |s| Growth::Each(s.into(), text("content")))
        }
        _ => Growth::Unicode,
    })
}

fn flatten(step: &Value, out: &mut Vec<(NormalizerWrapper, Growth)>) -> R<()> {
    match step.get("normalizers").and_then(Value::as_array) {
        Some(steps) if step.get("type").and_then(Value::as_str) == Some("Sequence") => steps.iter().try_for_each(|s| flatten(s, out)),
        _ => {
            let growth = growth(step)?;
            out.push((serde_json::from_value(step.clone()).map_err(|e| format!("normalizer: {e}"))?, growth));
            Ok(())
        }
    }
}

impl Steps {
    /// The normalizer section of a tokenizer.json.
    pub fn from_json(section: &Value) -> R<Option<Steps>> {
        if section.is_null() {
            return Ok(None);
        }
        let mut steps = vec![];
        flatten(section, &mut steps)?;
        Ok(Some(Steps(steps)))
    }

    pub fn normalize(&self, s: &mut NormalizedString) -> tokenizers::Result<()> {
        let room = s.get().len().saturating_mul(MAX_GROWTH).saturating_add(MIN_ROOM);
        for (step, growth) in &self.0 {
            let now = s.get();
            let more = match growth {
                Growth::Unicode => 0,
                Growth::Each(pattern, n) if *n > pattern.len() => now.matches(pattern.as_str()).count().saturating_mul(n - pattern.len()),
                Growth::Each(..) => 0,
                Growth::Anywhere(n) => (now.len() + 1).saturating_mul(*n),
                Growth::Once(n) => *n,
            };
            if now.len().saturating_add(more) > room {
                return Err(format!("normalizer: the text would grow to more than {MAX_GROWTH} times its length").into());
            }
            step.normalize(s)?;
        }
        Ok(())
    }
}
