//! Pre-tokenizers by the name a GGUF file gives (`tokenizer.ggml.pre`): which pieces the BPE works on.
//!
//! The patterns are the published ones of each model's tokenizer.json. Sources: those files, and the list of names that
//! GGUF converters write (llama.cpp `convert_hf_to_gguf_update.py`).
use crate::ffi::{err, give, guard, text, Sink, R};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior::Isolated;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const DIGIT: &str = r"\p{N}";
const DIGITS_3: &str = r"\p{N}{1,3}";
const ASCII_3: &str = r"[0-9][0-9][0-9]";
const GROUPS_OF_3: &str = r"\d{1,3}(?=(?:\d{3})*\b)";
const PUNCTUATION: &str = r"[\p{P}$+<=>^~|`]+";
const CJK_KANA: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
const CJK_WIDE: &str = "[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const NEWLINE: &str = "[\r\n]";
const DEEPSEEK_WORDS: &str = "\\s?[A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}]+";
const DEEPSEEK_PUNCTUATION: &str = "\\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+";
const DEEPSEEK_V3: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
const LINES: &str = r"[^\n]+|[\n]+";

/// How one family prepares its text.
#[derive(Clone, Copy, Default)]
pub struct Rules {
    /// Applied one after the other, each inside the pieces of the one before.
    pub patterns: &'static [&'static str],
    pub nfc: bool,
    /// A piece that is a token as a whole is taken without merging.
    pub ignore_merges: bool,
    /// Begin-of-sequence is added where the file does not say.
    pub add_bos: bool,
    /// Raw UTF-8 with U+2581 for spaces and byte tokens, instead of GPT-2's byte alphabet.
    pub escaped_spaces: bool,
}

const fn rules(patterns: &'static [&'static str]) -> Rules {
    Rules { patterns, nfc: false, ignore_merges: false, add_bos: false, escaped_spaces: false }
}
const fn nfc(r: Rules) -> Rules {
    Rules { nfc: true, ..r }
}
const fn whole_words(r: Rules) -> Rules {
    Rules { ignore_merges: true, ..r }
}
const fn with_bos(r: Rules) -> Rules {
    Rules { add_bos: true, ..r }
}

const DIGIT_GPT2: Rules = rules(&[DIGIT, GPT2]);
const DEEPSEEK3: Rules = rules(&[DIGITS_3, CJK_KANA, DEEPSEEK_V3]);

/// One family a line. A name may stand once only.
pub const FAMILIES: &[(&[&str], Rules)] = &[
    (&["default"], rules(&[PUNCTUATION_NO_TICK, GPT2, r"\p{N}+", ASCII_3])),
    (
        &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
        ],
        rules(&[GPT2]),
    ),
    (&["mpt", "olmo", "modern-bert"], nfc(rules(&[GPT2]))),
    (&["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"], DIGIT_GPT2),
    (&["command-r"], nfc(DIGIT_GPT2)),
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        with_bos(whole_words(rules(&[LLAMA3]))),
    ),
    (&["dbrx", "smaug-bpe", "chatglm-bpe"], rules(&[LLAMA3])),
    (&["glm4", "glm5"], whole_words(rules(&[LLAMA3]))),
    (&["jais-2"], rules(&[JAIS2])),
    (&["qwen2", "megrez"], nfc(rules(&[QWEN2]))),
    (&["deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "grok-2", "kormo", "f2llmv2"], rules(&[QWEN2])),
    (&["qwen35"], rules(&[QWEN35])),
    (&["ufakzeka"], rules(&[UFAKZEKA])),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], rules(&[O200K])),
    (&["granite-embed-multi-97m"], whole_words(rules(&[O200K]))),
    (&["tiny_aya", "cohere2moe"], rules(&[GROUPS_OF_3, O200K])),
    (&["tekken"], with_bos(whole_words(rules(&[TEKKEN])))),
    (&["falcon"], rules(&[PUNCTUATION, GPT2, ASCII_3])),
    (&["deepseek-llm"], rules(&[NEWLINE, DEEPSEEK_WORDS, DEEPSEEK_PUNCTUATION, r"\s+$", CJK_WIDE, r"\p{N}+"])),
    (&["deepseek-coder"], rules(&[NEWLINE, r"\s?\p{L}+", r"\s?\p{P}+", CJK_WIDE, DIGIT])),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], DEEPSEEK3),
    (&["minicpm5"], whole_words(rules(&[DIGITS_3, MINICPM5]))),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], rules(&[BAILING])),
    (&["seed-coder"], rules(&[SEED])),
    (&["exaone-moe"], rules(&[EXAONE_MOE])),
    (&["laguna"], rules(&[LINES, QWEN2])),
    (&["poro-chat", "bloom", "gpt3-finnish"], rules(&[BLOOM])),
    (&["viking"], rules(&[BLOOM, DIGIT])),
    (&["superbpe"], rules(&[r"\p{N}+", r"(?=(\d{3})+(?!\d))"])),
    (&["gemma4", "sarvam-moe", "granite-embed-multi-311m"], Rules { escaped_spaces: true, ..rules(&[LINES]) }),
];
// The fallback of files without a name predates the backtick in the punctuation class.
const PUNCTUATION_NO_TICK: &str = r"[\p{P}$+<=>^~|]+";

/// The rules of a name; the error lists the known ones.
pub fn find(name: &str) -> R<Rules> {
    FAMILIES.iter().find(|(names, _)| names.contains(&name)).map(|(_, r)| *r).ok_or_else(|| {
        let known: Vec<&str> = FAMILIES.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        format!("unknown pre-tokenizer \"{name}\"; known: {}", known.join(", "))
    })
}

/// The crate's pre-tokenizer for these rules.
pub fn build(r: &Rules) -> R<PreTokenizerWrapper> {
    let mut steps = vec![];
    for p in r.patterns {
        steps.push(PreTokenizerWrapper::Split(Split::new(SplitPattern::Regex((*p).into()), Isolated, false).map_err(err)?));
    }
    if !r.escaped_spaces {
        steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, false)));
    }
    Ok(PreTokenizerWrapper::Sequence(Sequence::new(steps)))
}

#[derive(serde::Serialize)]
struct Written {
    pre_tokenizer: PreTokenizerWrapper,
    nfc: bool,
    ignore_merges: bool,
    add_bos: bool,
}

/// What a `tokenizer.json` says for a name: `{"pre_tokenizer", "nfc", "ignore_merges", "add_bos"}`, as UTF-8 bytes to the sink.
///
/// # Safety
/// `name` is valid for `n` bytes; `context` is what `sink` takes.
#[no_mangle]
pub unsafe extern "C" fn slm_pre_json(name: *const u8, n: usize, sink: Sink, context: *mut std::ffi::c_void) -> bool {
    guard(false, || {
        let name = text(name, n)?;
        let rules = find(if name.is_empty() { "default" } else { name })?;
        if rules.escaped_spaces {
            return Err(format!("pre-tokenizer \"{name}\" belongs to another kind of vocabulary"));
        }
        let written = Written { pre_tokenizer: build(&rules)?, nfc: rules.nfc, ignore_merges: rules.ignore_merges, add_bos: rules.add_bos };
        give(sink, context, serde_json::to_string(&written).map_err(err)?.as_bytes());
        Ok(true)
    })
}
