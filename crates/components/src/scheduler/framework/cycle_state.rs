//! What plugins remember between the points of one scheduling cycle.

use std::any::Any;
use std::fmt;

trait Data: Any + Send + Sync {
    fn boxed_clone(&self) -> Box<dyn Data>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Clone + Send + Sync> Data for T {
    fn boxed_clone(&self) -> Box<dyn Data> {
        Box::new(self.clone())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A drawer per type, so that plugins cannot read each other's notes by accident; cloned for every what-if of preemption.
#[derive(Default)]
pub struct CycleState {
    data: Vec<Box<dyn Data>>,
    /// Plugins whose Filter has nothing to say this time.
    pub(super) skip_filter: Vec<&'static str>,
    /// Plugins whose Score has nothing to say this time.
    pub(super) skip_score: Vec<&'static str>,
}

impl Clone for CycleState {
    fn clone(&self) -> Self {
        Self {
            data: self.data.iter().map(|data| (**data).boxed_clone()).collect(),
            skip_filter: self.skip_filter.clone(),
            skip_score: self.skip_score.clone(),
        }
    }
}

impl fmt::Debug for CycleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CycleState").field("entries", &self.data.len()).finish_non_exhaustive()
    }
}

impl CycleState {
    /// Writes, replacing an earlier value of the same type.
    pub fn write<T: Any + Clone + Send + Sync>(&mut self, value: T) {
        match self.read_mut::<T>() {
            Some(slot) => *slot = value,
            None => self.data.push(Box::new(value)),
        }
    }

    /// Reads what was written under this type.
    #[must_use]
    pub fn read<T: Any>(&self) -> Option<&T> {
        self.data.iter().find_map(|data| (**data).as_any().downcast_ref())
    }

    /// The same, to change it.
    pub fn read_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.data.iter_mut().find_map(|data| (**data).as_any_mut().downcast_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_does_not_share_what_the_original_wrote() {
        let mut state = CycleState::default();
        state.write(1u8);
        let mut other = state.clone();
        other.write(2u8);
        assert_eq!((state.read::<u8>(), other.read::<u8>()), (Some(&1), Some(&2)));
        assert_eq!(state.read::<u16>(), None);
    }
}
