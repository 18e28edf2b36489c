//! Refuses templates whose syntax tree would be a long chain, before they are parsed.
//!
//! The engine bounds nesting by brackets and blocks, but builds one level of its tree for each operator, filter, call or
//! `elif` of a chain, and walks (and frees) that tree by recursion. The engine's own lexer does the counting, so what is
//! counted is what it will parse.
use minijinja::machinery::{tokenize, Token};
use minijinja::syntax::SyntaxConfig;

/// Operators in one tag, and `elif` branches one inside the other's chain. Published templates stay below 100.
pub const MAX_CHAIN: usize = 2000;

fn deepens(t: &Token) -> bool {
    match t {
        Token::Ident(w) => matches!(*w, "not" | "and" | "or" | "in" | "is" | "if"),
        Token::Plus | Token::Minus | Token::Mul | Token::Div | Token::FloorDiv | Token::Pow | Token::Mod => true,
        Token::Tilde | Token::Dot | Token::Pipe | Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => true,
        Token::Eq | Token::Ne | Token::Gt | Token::Gte | Token::Lt | Token::Lte => true,
        _ => false,
    }
}

/// An error names the line. Text that does not lex is left to the parser, which stops at the same place.
pub fn check(source: &str, syntax: SyntaxConfig) -> Result<(), String> {
    let mut operators = 0;
    let mut branches = vec![0usize]; // elif counts of the open ifs
    let mut open = 0usize; // their sum
    let mut tag_begins = false;
    for token in tokenize(source, false, syntax) {
        let Ok((token, span)) = token else { return Ok(()) };
        let first = std::mem::replace(&mut tag_begins, matches!(token, Token::BlockStart));
        match token {
            Token::BlockStart | Token::VariableStart => operators = 0,
            Token::Ident("if") if first => branches.push(0),
            Token::Ident("elif") if first => {
                open += 1;
                if let Some(n) = branches.last_mut() {
                    *n += 1;
                }
            }
            Token::Ident("endif") if first && branches.len() > 1 => open -= branches.pop().unwrap_or(0),
            ref t => operators += usize::from(deepens(t)),
        }
        for (n, what) in [(operators, "operators in one tag"), (open, "elif branches in one another")] {
            if n > MAX_CHAIN {
                return Err(format!("line {}: more than {MAX_CHAIN} {what}", span.start_line));
            }
        }
    }
    Ok(())
}
