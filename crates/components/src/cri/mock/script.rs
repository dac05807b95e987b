//! What a mock container does, from its command line: the handful of shell commands that examples and tests are made of.
//!
//! `echo`, `printf`, `sleep`, `true`, `false`, `exit`, `date`, in sequence, and `while true; do …; done`. Anything else is not
//! understood, and then the caller decides what the container does. This is no shell and does not want to become one.

use std::time::Duration;

use super::behaviour::parse_duration;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Print a line; `true` for standard error.
    Print(String, bool),
    /// Wait.
    Sleep(Duration),
    /// Wait for ever.
    Forever,
    /// Do all this again and again.
    Loop(Vec<Step>),
    /// End with this code.
    Exit(i32),
}

/// What to do, step by step; without an [`Step::Exit`] it ends with code 0. `None` if the command is not understood.
#[must_use]
pub fn parse(argv: &[String]) -> Option<Vec<Step>> {
    let (program, arguments) = argv.split_first()?;
    let program = program.rsplit('/').next().unwrap_or(program);
    match program {
        "sh" | "bash" | "ash" | "dash" => {
            let [flag, script, ..] = arguments else { return None };
            // `-ec`, `-xc` and their kin change nothing here.
            if flag.starts_with('-') && flag.ends_with('c') { sequence(&statements(script)) } else { None }
        }
        "pause" => Some(vec![Step::Forever]),
        _ => Some(vec![simple(program, arguments)?]),
    }
}

fn simple(program: &str, arguments: &[String]) -> Option<Step> {
    Some(match program {
        "echo" => {
            let words: Vec<&str> = arguments.iter().skip_while(|word| matches!(word.as_str(), "-n" | "-e")).map(String::as_str).collect();
            match words.as_slice() {
                [words @ .., ">&2" | "1>&2"] => Step::Print(words.join(" "), true),
                words if words.iter().any(|word| word.starts_with('>')) => Step::Sleep(Duration::ZERO),
                words => Step::Print(words.join(" "), false),
            }
        }
        "printf" => Step::Print(arguments.first()?.replace("\\n", ""), false),
        "sleep" => match arguments.first()?.as_str() {
            "infinity" | "inf" => Step::Forever,
            text => Step::Sleep(
                parse_duration(text).or_else(|| text.strip_suffix('d')?.parse().ok().map(|days: u64| Duration::from_secs(days * 86400)))?,
            ),
        },
        "true" | ":" => Step::Sleep(Duration::ZERO),
        "date" => Step::Print("$(date)".into(), false),
        "false" => Step::Exit(1),
        "exit" => Step::Exit(arguments.first().map_or(Some(0), |code| code.parse().ok())?),
        _ => return None,
    })
}

/// Splits a script into words per statement, minding quotes.
fn statements(script: &str) -> Vec<Vec<String>> {
    let mut statements = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = script.chars().peekable();
    let end_word = |word: &mut Option<String>, statements: &mut Vec<Vec<String>>| {
        if let (Some(word), Some(last)) = (word.take(), statements.last_mut()) {
            last.push(word);
        }
    };
    while let Some(c) = characters.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', Some('"') | None) => word.get_or_insert_default().extend(characters.next()),
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (';' | '\n', None) => {
                end_word(&mut word, &mut statements);
                statements.push(Vec::new());
            }
            ('&', None) if characters.peek() == Some(&'&') => {
                characters.next();
                end_word(&mut word, &mut statements);
                statements.push(Vec::new());
            }
            (c, None) if c.is_whitespace() => end_word(&mut word, &mut statements),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    end_word(&mut word, &mut statements);
    statements.retain(|statement| !statement.is_empty());
    statements
}

fn sequence(statements: &[Vec<String>]) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut index = 0;
    while let Some(statement) = statements.get(index) {
        index += 1;
        let mut words = statement.as_slice();
        if let Some("exec" | "set") = words.first().map(String::as_str) {
            if words[0] == "set" {
                continue;
            }
            words = &words[1..];
        }
        let (program, arguments) = words.split_first()?;
        if program == "while" && matches!(arguments, [word] if word == "true" || word == ":") {
            let end = index + statements[index..].iter().position(|statement| statement[0] == "done")?;
            let mut body: Vec<Vec<String>> = statements[index..end].to_vec();
            let first = body.first_mut()?;
            if first.first().map(String::as_str) != Some("do") {
                return None;
            }
            first.remove(0);
            body.retain(|statement| !statement.is_empty());
            steps.push(Step::Loop(sequence(&body)?));
            index = end + 1;
            continue;
        }
        let program = program.rsplit('/').next().unwrap_or(program);
        let step = simple(program, arguments)?;
        let last = matches!(step, Step::Exit(_));
        steps.push(step);
        if last {
            break;
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Option<Vec<Step>> {
        parse(&["/bin/sh".into(), "-c".into(), script.into()])
    }

    fn say(text: &str) -> Step {
        Step::Print(text.into(), false)
    }

    #[test]
    fn sequences_of_simple_commands_are_understood() {
        assert_eq!(
            shell("echo 'hello  world'; sleep 2 && exit 3"),
            Some(vec![say("hello  world"), Step::Sleep(Duration::from_secs(2)), Step::Exit(3)])
        );
        assert_eq!(shell("echo oops >&2; exit 1"), Some(vec![Step::Print("oops".into(), true), Step::Exit(1)]));
        assert_eq!(parse(&["sleep".into(), "3600".into()]), Some(vec![Step::Sleep(Duration::from_secs(3600))]));
        assert_eq!(parse(&["sleep".into(), "infinity".into()]), Some(vec![Step::Forever]));
        assert_eq!(parse(&["/bin/false".into()]), Some(vec![Step::Exit(1)]));
    }

    #[test]
    fn an_endless_loop_is_understood() {
        let steps = shell("while true; do echo tick; sleep 1; done").unwrap();
        assert_eq!(steps, [Step::Loop(vec![say("tick"), Step::Sleep(Duration::from_secs(1))])]);
    }

    #[test]
    fn everything_else_is_left_to_the_caller() {
        for script in ["nginx -g 'daemon off;'", "until nc -z db 5432; do sleep 1; done", "for i in 1 2; do echo $i; done"] {
            assert_eq!(shell(script), None, "{script}");
        }
        assert_eq!(parse(&["nginx".into()]), None);
        assert_eq!(parse(&[]), None);
    }
}
