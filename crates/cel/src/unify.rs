//! What may be assigned to what: the unification of types with type variables that the checker uses to resolve
//! overloads and to join the types of literals. Every attempt that fails is undone.

use crate::types::{Type, TypeVariable};

/// What is known of the type variables so far.
#[derive(Debug, Default)]
pub(crate) struct Substitution {
    bound: Vec<Option<Type>>,
    /// Earlier values, to undo a failed attempt.
    trail: Vec<(u32, Option<Type>)>,
}

impl Substitution {
    pub fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Variable(TypeVariable::Fresh((self.bound.len() - 1) as u32))
    }

    fn find(&self, t: &Type) -> Option<&Type> {
        match t {
            Type::Variable(TypeVariable::Fresh(n)) => self.bound.get(*n as usize)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, variable: &Type, to: Type) {
        if let Type::Variable(TypeVariable::Fresh(n)) = variable
            && let Some(slot) = self.bound.get_mut(*n as usize)
        {
            self.trail.push((*n, slot.replace(to)));
        }
    }

    fn undo_to(&mut self, mark: usize) {
        while self.trail.len() > mark {
            if let Some((n, earlier)) = self.trail.pop() {
                self.bound[n as usize] = earlier;
            }
        }
    }

    /// Whether `from` can be assigned to `to`; remembers what that says of the variables in them.
    pub fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        let mark = self.trail.len();
        let fits = self.fits(from, to);
        if !fits {
            self.undo_to(mark);
        }
        fits
    }

    /// As [`assignable`](Self::assignable), for all of a list of arguments at once.
    pub fn assignable_all<'t>(&mut self, from: &[Type], to: impl ExactSizeIterator<Item = &'t Type>) -> bool {
        if from.len() != to.len() {
            return false;
        }
        let mark = self.trail.len();
        for (from, to) in from.iter().zip(to) {
            if !self.fits(from, to) {
                self.undo_to(mark);
                return false;
            }
        }
        true
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if matches!(to, Type::Variable(_)) {
            let (valid, bound) = self.substitutes(from, to);
            if valid {
                return true;
            }
            if bound {
                return false;
            }
        }
        if matches!(from, Type::Variable(_)) {
            return self.substitutes(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => {
                matches!(other, Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Duration | Type::Timestamp)
            }
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.fits(a, b),
            (Type::Map(a), Type::Map(b)) => self.fits(&a.0, &b.0) && self.fits(&a.1, &b.1),
            (Type::Opaque(name, a), Type::Opaque(other, b)) => {
                name == other && a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| self.fits(a, b))
            }
            _ => from == to,
        }
    }

    /// Whether `variable`, or what it stands for, can stand for `t`; and whether it stood for something before.
    fn substitutes(&mut self, t: &Type, variable: &Type) -> (bool, bool) {
        if t == variable {
            return (true, true);
        }
        if let Some(current) = self.find(variable).cloned() {
            if *t == current {
                return (true, true);
            }
            if self.fits(t, &current) {
                let general = most_general(t, &current).clone();
                if self.absent_from(variable, &general) {
                    self.bind(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.absent_from(variable, t) {
            self.bind(variable, t.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether the variable does not occur in the type: it cannot stand for something that contains itself.
    fn absent_from(&self, variable: &Type, t: &Type) -> bool {
        if variable == t {
            return false;
        }
        match t {
            Type::Variable(_) => self.find(t).is_none_or(|bound| self.absent_from(variable, bound)),
            Type::List(inner) | Type::Type(Some(inner)) => self.absent_from(variable, inner),
            Type::Map(entry) => self.absent_from(variable, &entry.0) && self.absent_from(variable, &entry.1),
            Type::Opaque(_, parameters) => parameters.iter().all(|p| self.absent_from(variable, p)),
            _ => true,
        }
    }

    /// The type with what is known put in place of its variables; with `to_dyn`, the unknown ones become `dyn`.
    pub fn resolve(&self, t: &Type, to_dyn: bool) -> Type {
        if let Some(bound) = self.find(t) {
            return self.resolve(bound, to_dyn);
        }
        match t {
            Type::Variable(_) if to_dyn => Type::Dyn,
            Type::List(element) => Type::list(self.resolve(element, to_dyn)),
            Type::Map(entry) => Type::map(self.resolve(&entry.0, to_dyn), self.resolve(&entry.1, to_dyn)),
            Type::Type(Some(inner)) => Type::type_of(self.resolve(inner, to_dyn)),
            Type::Opaque(name, parameters) if !parameters.is_empty() => {
                Type::Opaque(name.clone(), parameters.iter().map(|p| self.resolve(p, to_dyn)).collect())
            }
            _ => t.clone(),
        }
    }
}

/// The more general of two types that are known to fit each other.
pub(crate) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if equal_or_less_specific(a, b) { a } else { b }
}

fn equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Variable(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Variable(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) => equal_or_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => equal_or_less_specific(&a.0, &b.0) && equal_or_less_specific(&a.1, &b.1),
        (Type::Opaque(name, a), Type::Opaque(other, b)) => {
            name == other && a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal_or_less_specific(a, b))
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}

/// Puts the given variables in place of the declared ones.
pub(crate) fn instantiate(t: &Type, variables: &[(char, Type)]) -> Type {
    match t {
        Type::Variable(TypeVariable::Declared(name)) => {
            variables.iter().find(|(n, _)| n == name).map_or(Type::Dyn, |(_, fresh)| fresh.clone())
        }
        Type::List(element) => Type::list(instantiate(element, variables)),
        Type::Map(entry) => Type::map(instantiate(&entry.0, variables), instantiate(&entry.1, variables)),
        Type::Type(Some(inner)) => Type::type_of(instantiate(inner, variables)),
        Type::Opaque(name, parameters) if !parameters.is_empty() => {
            Type::Opaque(name.clone(), parameters.iter().map(|p| instantiate(p, variables)).collect())
        }
        _ => t.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_attempt_leaves_no_trace() {
        let mut s = Substitution::default();
        let v = s.fresh();
        let pair = |a: Type, b: Type| Type::map(a, b);
        assert!(!s.assignable(&pair(Type::Int, Type::Int), &pair(v.clone(), Type::String)));
        assert_eq!(s.resolve(&v, true), Type::Dyn);
        assert!(s.assignable(&Type::String, &v));
        assert_eq!(s.resolve(&v, true), Type::String);
    }

    #[test]
    fn a_variable_cannot_contain_itself() {
        let mut s = Substitution::default();
        let v = s.fresh();
        assert!(!s.assignable(&Type::list(v.clone()), &v));
    }

    #[test]
    fn null_fits_messages_and_times_but_not_scalars() {
        let mut s = Substitution::default();
        assert!(s.assignable(&Type::Null, &Type::object("a.B")));
        assert!(s.assignable(&Type::Null, &Type::Timestamp));
        assert!(!s.assignable(&Type::Null, &Type::Int));
        assert!(!s.assignable(&Type::Null, &Type::list(Type::Int)));
    }
}
