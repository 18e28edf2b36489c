//! `strftime_now` with a clock that is handed in, so that a prompt is a function of its inputs.
//!
//! Directives are those of C's strftime in the C locale (ISO/IEC 9899 7.27.3.5), as Python's datetime.strftime gives them.
use crate::ffi::R;

#[derive(Clone, Copy)]
pub struct Clock {
    year: i64,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

fn leap(y: i64) -> bool {
    (y % 4 == 0 && y % 100 != 0) || y % 400 == 0
}

impl Clock {
    /// Reads "YYYY-MM-DD HH:MM:SS" ("T" between date and time, and a date alone, are taken too).
    pub fn parse(s: &str) -> R<Clock> {
        let bad = || format!("clock \"{s}\" is not of the form YYYY-MM-DD HH:MM:SS");
        let digits: Vec<i64> = s
            .split(['-', ' ', 'T', ':'])
            .map(|p| if p.len() <= 4 && p.bytes().all(|b| b.is_ascii_digit()) { p.parse().ok() } else { None })
            .collect::<Option<_>>()
            .ok_or_else(bad)?;
        let (date, time) = match digits[..] {
            [y, m, d] => ([y, m, d], [0, 0, 0]),
            [y, m, d, h, min, sec] => ([y, m, d], [h, min, sec]),
            _ => return Err(bad()),
        };
        let month_days = match date[1] {
            2 => 28 + i64::from(leap(date[0])),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return Err(bad()),
        };
        if date[0] < 1 || !(1..=month_days).contains(&date[2]) || time[0] > 23 || time[1] > 59 || time[2] > 60 {
            return Err(bad());
        }
        Ok(Clock {
            year: date[0],
            month: date[1] as u32,
            day: date[2] as u32,
            hour: time[0] as u32,
            minute: time[1] as u32,
            second: time[2] as u32,
        })
    }

    fn day_of_year(&self) -> u32 {
        const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        BEFORE[self.month as usize - 1] + self.day + u32::from(self.month > 2 && leap(self.year))
    }
    /// 0 = Sunday (proleptic Gregorian calendar).
    fn weekday(&self) -> u32 {
        let y = self.year - 1;
        ((y * 365 + y / 4 - y / 100 + y / 400 + i64::from(self.day_of_year())) % 7) as u32
    }
    /// ISO 8601 year and week.
    fn iso(&self) -> (i64, u32) {
        let monday_based = (self.weekday() + 6) % 7;
        let week = (self.day_of_year() + 9 - monday_based) / 7;
        let long = |y: i64| {
            let jan1 = Clock { year: y, month: 1, day: 1, hour: 0, minute: 0, second: 0 }.weekday();
            jan1 == 4 || (leap(y) && jan1 == 3)
        };
        match week {
            0 => (self.year - 1, 52 + u32::from(long(self.year - 1))),
            53 if !long(self.year) => (self.year + 1, 1),
            w => (self.year, w),
        }
    }

    pub fn format(&self, pattern: &str) -> R<String> {
        let mut out = String::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            // glibc's flags: "-" drops padding, "_" pads with spaces, "0" with zeros.
            let mut d = chars.next();
            let mut flag = None;
            if let Some(f @ ('-' | '_' | '0')) = d {
                flag = Some(f);
                d = chars.next();
            }
            let Some(d) = d else { return Err(format!("strftime: \"{pattern}\" ends inside a directive")) };
            out.push_str(&self.directive(d, flag, pattern)?);
        }
        Ok(out)
    }

    fn directive(&self, d: char, flag: Option<char>, pattern: &str) -> R<String> {
        let number = |n: i64, width: usize, space: bool| match (flag, space) {
            (Some('-'), _) => n.to_string(),
            (Some('_'), _) | (None, true) => format!("{n:>width$}"),
            _ => format!("{n:0>width$}"),
        };
        let two = |n: u32| number(i64::from(n), 2, false);
        let hour12 = (self.hour + 11) % 12 + 1;
        let (weekday, yday) = (self.weekday(), self.day_of_year());
        Ok(match d {
            'a' => DAYS[weekday as usize][..3].into(),
            'A' => DAYS[weekday as usize].into(),
            'b' | 'h' => MONTHS[self.month as usize - 1][..3].into(),
            'B' => MONTHS[self.month as usize - 1].into(),
            'c' => self.format("%a %b %e %H:%M:%S %Y")?,
            'C' => two((self.year / 100) as u32),
            'd' => two(self.day),
            'D' | 'x' => self.format("%m/%d/%y")?,
            'e' => number(i64::from(self.day), 2, true),
            'F' => self.format("%Y-%m-%d")?,
            'g' => two((self.iso().0 % 100) as u32),
            'G' => self.iso().0.to_string(),
            'H' => two(self.hour),
            'I' => two(hour12),
            'j' => number(i64::from(yday), 3, false),
            'k' => number(i64::from(self.hour), 2, true),
            'l' => number(i64::from(hour12), 2, true),
            'm' => two(self.month),
            'M' => two(self.minute),
            'n' => "\n".into(),
            'f' => "000000".into(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
            'P' => if self.hour < 12 { "am" } else { "pm" }.into(),
            'r' => self.format("%I:%M:%S %p")?,
            'R' => self.format("%H:%M")?,
            'S' => two(self.second),
            't' => "\t".into(),
            'T' | 'X' => self.format("%H:%M:%S")?,
            'u' => (if weekday == 0 { 7 } else { weekday }).to_string(),
            'U' => two((yday + 6 - weekday) / 7),
            'V' => two(self.iso().1),
            'w' => weekday.to_string(),
            'W' => two((yday + 6 - (weekday + 6) % 7) / 7),
            'y' => two((self.year % 100) as u32),
            'Y' => number(self.year, 1, false),
            'z' | 'Z' => String::new(), // a naive clock has no zone, as in Python
            '%' => "%".into(),
            other => return Err(format!("strftime: unknown directive %{other} in \"{pattern}\"")),
        })
    }
}
