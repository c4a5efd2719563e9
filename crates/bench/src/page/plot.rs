//! A plot that a page can hold: what draws of an SVG file, and nothing else of it.
//!
//! Relies on roxmltree, which refuses document types and with them entities. Elements and attributes are kept by name: links, styles, scripts and
//! events have none of these names, and a value that refers to anything is dropped.

use std::fmt::Write as _;

use roxmltree::{Document, Node};

const SVG: &str = "http://www.w3.org/2000/svg";
/// Elements that draw.
const ELEMENTS: &[&str] =
    &["svg", "g", "title", "desc", "text", "tspan", "rect", "line", "polyline", "polygon", "circle", "ellipse", "path"];
/// Attributes that say where and how.
const ATTRIBUTES: &[&str] = &[
    "viewBox",
    "x",
    "y",
    "x1",
    "y1",
    "x2",
    "y2",
    "cx",
    "cy",
    "r",
    "rx",
    "ry",
    "dx",
    "dy",
    "width",
    "height",
    "d",
    "points",
    "transform",
    "fill",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "opacity",
    "fill-opacity",
    "stroke-opacity",
    "font-family",
    "font-size",
    "font-weight",
    "text-anchor",
];
/// More than any plot of ours has.
const MOST_DEPTH: usize = 32;
const MOST_NODES: u32 = 200_000;

/// A plot.
#[derive(Debug)]
pub struct Plot {
    /// The file's name without its ending.
    pub name: String,
    /// An `svg` element that is safe to put into a page.
    pub svg: String,
}

impl Plot {
    /// The plot in `text`, or why it is none.
    pub fn read(name: &str, text: &str) -> Result<Self, String> {
        let options = roxmltree::ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..Default::default() };
        let document = Document::parse_with_options(text, options).map_err(|error| format!("it is no SVG: {error}"))?;
        let root = document.root_element();
        if !is_drawing(&root) || root.tag_name().name() != "svg" {
            return Err("it is no SVG".into());
        }
        let mut svg = String::with_capacity(text.len());
        write_node(&mut svg, &root, name, 0)?;
        Ok(Self { name: name.to_owned(), svg })
    }
}

fn is_drawing(node: &Node) -> bool {
    let tag = node.tag_name();
    node.is_element() && tag.namespace() == Some(SVG) && ELEMENTS.contains(&tag.name())
}

fn write_node(svg: &mut String, node: &Node, title: &str, depth: usize) -> Result<(), String> {
    if depth > MOST_DEPTH {
        return Err("it is nested too deeply".into());
    }
    let tag = node.tag_name().name();
    let _ = write!(svg, "<{tag}");
    let is_root = depth == 0;
    for attribute in node.attributes().filter(|attribute| attribute.namespace().is_none()) {
        let (name, value) = (attribute.name(), attribute.value());
        // The page decides how large a plot is.
        let is_size = is_root && ["width", "height"].contains(&name);
        if ATTRIBUTES.contains(&name) && !is_size && is_plain(value) {
            let _ = write!(svg, " {name}=\"{}\"", escaped(value));
        }
    }
    if is_root {
        if let (None, Some(width), Some(height)) =
            (node.attribute("viewBox"), number(node, "width"), number(node, "height"))
        {
            let _ = write!(svg, " viewBox=\"0 0 {width} {height}\"");
        }
        let _ = write!(svg, " role=\"img\" aria-label=\"{}\"", escaped(title));
    }
    svg.push('>');
    for child in node.children() {
        if child.is_text() {
            svg.push_str(&escaped(child.text().unwrap_or_default()));
        } else if is_drawing(&child) {
            write_node(svg, &child, title, depth + 1)?;
        }
    }
    let _ = write!(svg, "</{tag}>");
    Ok(())
}

/// Whether a value only says a size, a place, a colour or a name; `url(…)` and escapes of CSS say more.
fn is_plain(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    !["url", "javascript", "expression", "\\", "/*"].iter().any(|part| lower.contains(part))
}

fn number(node: &Node, name: &str) -> Option<f64> {
    node.attribute(name)?.trim_end_matches("px").parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(inner: &str) -> String {
        let text = format!(
            "<svg width=\"9\" height=\"4\" xmlns=\"{SVG}\" xmlns:x=\"http://www.w3.org/1999/xlink\">{inner}</svg>"
        );
        Plot::read("a \"plot\"", &text).unwrap().svg
    }

    #[test]
    fn what_draws_is_kept_and_the_page_sets_the_size() {
        let svg = read("<text x=\"1\" fill=\"#000000\">a &lt; b &amp; c</text><line x1=\"0\" y1=\"1\"/>");
        assert_eq!(
            svg,
            "<svg viewBox=\"0 0 9 4\" role=\"img\" aria-label=\"a &quot;plot&quot;\"><text x=\"1\" fill=\"#000000\">a &lt; b &amp; c</text>\
             <line x1=\"0\" y1=\"1\"></line></svg>"
        );
    }

    #[test]
    fn what_acts_links_or_loads_is_left_out() {
        for inner in [
            "<script>alert(1)</script>",
            "<rect onload=\"alert(1)\" onclick=\"x\"/>",
            "<a x:href=\"javascript:alert(1)\"><text>t</text></a>",
            "<image href=\"http://example.com/a.png\"/>",
            "<use href=\"#a\"/>",
            "<style>@import url(http://example.com)</style>",
            "<foreignObject><iframe src=\"x\" xmlns=\"http://www.w3.org/1999/xhtml\"/></foreignObject>",
            "<rect fill=\"url(http://example.com)\" style=\"fill:red\" x:href=\"y\"/>",
            "<rect fill=\"u\\72l(x)\"/>",
            "<animate attributeName=\"x\"/><set/>",
        ] {
            let svg = read(inner);
            for part in
                ["script", "alert", "onload", "href", "http", "url", "style", "iframe", "image", "animate", "\\"]
            {
                assert!(!svg.contains(part), "{part} in {svg}");
            }
        }
    }

    #[test]
    fn what_is_no_drawing_is_refused() {
        let bomb = "<!DOCTYPE svg [<!ENTITY a \"aaaa\">]><svg xmlns=\"http://www.w3.org/2000/svg\">&a;</svg>";
        let deep = format!("<svg xmlns=\"{SVG}\">{}{}</svg>", "<g>".repeat(40), "</g>".repeat(40));
        for text in ["", "<svg/>", "<html/>", "no", bomb, &deep] {
            assert!(Plot::read("a", text).is_err(), "{text:.60}");
        }
    }
}
