//! What a server says of itself in INFO, as names and values.
//!
//! Relies on lines of `name:value`; a field that is missing or no number is an error that names it.

use std::collections::HashMap;

use anyhow::{Context, bail};

use crate::resp::{Connection, Value};

/// The fields of one INFO reply.
#[derive(Debug, Clone, Default)]
pub struct ServerInfo(HashMap<String, String>);

impl ServerInfo {
    /// Asks for `section`.
    ///
    /// # Errors
    /// When the server does not answer with text.
    pub fn ask(connection: &mut Connection, section: &str) -> anyhow::Result<Self> {
        match connection.call(&[b"INFO", section.as_bytes()])? {
            Value::Bulk(Some(text)) => Ok(Self::parse(&String::from_utf8_lossy(&text))),
            other => bail!("INFO {section} was answered by {other:?}"),
        }
    }

    /// Reads the fields of `text`.
    pub fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The field called `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The number in the field called `name`.
    ///
    /// # Errors
    /// When there is no such field or it holds no number.
    pub fn number(&self, name: &str) -> anyhow::Result<f64> {
        let text = self.text(name).with_context(|| format!("INFO has no field {name}"))?;
        text.parse().with_context(|| format!("INFO field {name} is {text:?}, not a number"))
    }

    /// Whether the field called `name` is `1`.
    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_missing_ones_are_named() {
        let info = ServerInfo::parse("# Persistence\r\nloading:0\r\nrdb_saves:3\r\nmode:map\r\n");
        assert_eq!(info.number("rdb_saves").unwrap(), 3.0);
        assert!(!info.flag("loading"));
        assert!(info.number("absent").unwrap_err().to_string().contains("absent"));
        assert!(info.number("mode").is_err());
    }
}
