//! What many pods have in common is kept once: their shapes, and the names of their namespaces and nodes. Without it a view
//! of 150,000 pods would hold each template a thousand times.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use afloat_core::view::PodShape;

/// Fewer than this are never swept.
const FEW: usize = 1024;

/// Shapes in use, found by a digest of what differs most and compared whole.
#[derive(Debug, Default)]
pub struct Shapes {
    known: HashMap<u64, Vec<Arc<PodShape>>>,
    count: usize,
    sweep_at: usize,
}

impl Shapes {
    /// The one value for all pods of this shape.
    pub fn shared(&mut self, shape: Arc<PodShape>) -> Arc<PodShape> {
        let bucket = self.known.entry(digest(&shape)).or_default();
        if let Some(known) = bucket.iter().find(|known| ***known == *shape) {
            return Arc::clone(known);
        }
        bucket.push(Arc::clone(&shape));
        self.count += 1;
        if self.count > self.sweep_at.max(FEW) {
            self.sweep();
        }
        shape
    }

    /// Forgets shapes that no pod has any more; next time when as many again have come.
    fn sweep(&mut self) {
        self.known.retain(|_, bucket| {
            bucket.retain(|shape| Arc::strong_count(shape) > 1);
            !bucket.is_empty()
        });
        self.count = self.known.values().map(Vec::len).sum();
        self.sweep_at = self.count * 2;
    }
}

fn digest(shape: &PodShape) -> u64 {
    let mut hasher = DefaultHasher::new();
    shape.labels.hash(&mut hasher);
    shape.owner.as_ref().map(|owner| &owner.uid).hash(&mut hasher);
    shape.claims.hash(&mut hasher);
    shape.requests.cpu_milli.hash(&mut hasher);
    shape.requests.memory.hash(&mut hasher);
    hasher.finish()
}

/// Texts that come again and again: namespaces, names of nodes.
#[derive(Debug, Default)]
pub struct Texts(HashSet<Arc<str>>);

impl Texts {
    pub fn shared(&mut self, text: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        if self.0.len() >= FEW && self.0.len().is_power_of_two() {
            self.0.retain(|known| Arc::strong_count(known) > 1);
        }
        self.0.insert(Arc::clone(text));
        Arc::clone(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(app: &str) -> Arc<PodShape> {
        Arc::new(PodShape {
            labels: [(Arc::from("app"), Arc::from(app))].into(),
            ..PodShape::default()
        })
    }

    #[test]
    fn pods_of_one_template_share_their_shape() {
        let mut shapes = Shapes::default();
        let first = shapes.shared(shape("web"));
        assert!(Arc::ptr_eq(&first, &shapes.shared(shape("web"))));
        assert!(!Arc::ptr_eq(&first, &shapes.shared(shape("db"))));
    }

    #[test]
    fn shapes_that_nobody_has_are_forgotten() {
        let mut shapes = Shapes::default();
        let kept = shapes.shared(shape("kept"));
        for number in 0..5 * FEW {
            shapes.shared(shape(&number.to_string()));
        }
        assert!(shapes.count <= 2 * FEW, "{}", shapes.count);
        assert!(Arc::ptr_eq(&kept, &shapes.shared(shape("kept"))));
    }
}
