//! A list of objects as bytes: what stands in front of the items, the stored bytes of each, and the end. Made in pieces where it is sent,
//! so that a long list is never in memory twice, and once more as a whole where somebody records it.

use std::sync::Arc;

use bytes::Bytes;

use super::Object;

/// What a list ends with.
const END: &[u8] = b"]}\n";

/// A list.
#[derive(Debug)]
pub struct List {
    head: String,
    objects: Vec<Arc<Object>>,
    whole: bool,
    length: usize,
}

impl List {
    /// A list of what stands in front of its items, the opening bracket included, and of the objects, which are `whole` if they say their
    /// apiVersion and kind.
    pub fn new(head: String, objects: Vec<Arc<Object>>, whole: bool) -> Self {
        let items: usize = objects.iter().map(|object| if whole { object.json.len() } else { 1 + object.item().len() }).sum();
        let length = head.len() + items + objects.len().saturating_sub(1) + END.len();
        List { head, objects, whole, length }
    }

    /// Whether it is the same as another one to the last byte, as far as that is seen without reading: by being of the same objects.
    pub fn is_same(&self, other: &List) -> bool {
        let same = |(one, other): (&Arc<Object>, &Arc<Object>)| Arc::ptr_eq(one, other);
        self.length == other.length
            && self.whole == other.whole
            && self.objects.len() == other.objects.len()
            && self.head == other.head
            && self.objects.iter().zip(&other.objects).all(same)
    }

    /// How many bytes it is.
    pub fn length(&self) -> usize {
        self.length
    }

    /// All of it.
    pub fn text(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.length);
        self.write(0, usize::MAX, &mut out);
        out.into()
    }

    /// All of it in pieces of about a size.
    pub fn pieces(self: Arc<Self>, size: usize) -> impl Iterator<Item = Bytes> {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let mut out = Vec::with_capacity((size + 4096).min(self.length));
            next = self.write(next?, size, &mut out);
            Some(out.into())
        })
    }

    /// Writes from an item on until there are so many bytes; answers which one is next, if there is more to write.
    fn write(&self, first: usize, size: usize, out: &mut Vec<u8>) -> Option<usize> {
        if first == 0 {
            out.extend_from_slice(self.head.as_bytes());
        }
        for (at, object) in self.objects.iter().enumerate().skip(first) {
            if at > 0 {
                out.push(b',');
            }
            if self.whole {
                out.extend_from_slice(&object.json);
            } else {
                out.push(b'{');
                out.extend_from_slice(object.item());
            }
            if out.len() >= size {
                return Some(at + 1);
            }
        }
        out.extend_from_slice(END);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_are_the_whole_whatever_their_size() {
        let object = |name: &str| {
            let stored = format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\"}}}}");
            Arc::new(Object::new(format!("/registry/pods/{name}").into(), 7, stored.as_bytes()))
        };
        for count in 0..4 {
            for whole in [true, false] {
                let objects = ["a", "b", "c"].iter().take(count).map(|name| object(name)).collect();
                let list = Arc::new(List::new("{\"items\":[".into(), objects, whole));
                let text = list.text();
                assert_eq!(text.len(), list.length());
                let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(value["items"].as_array().unwrap().len(), count);
                assert!(count == 0 || value["items"][0].get("kind").is_some() == whole);
                for size in [1, 30, 100, 1000] {
                    assert_eq!(list.clone().pieces(size).collect::<Vec<_>>().concat(), text);
                }
            }
        }
    }
}
