//! The static estimate: walks a checked expression and adds up the least and the most that each node can cost.
//! Sizes come from literals, from the schema by the path that leads to a value, and from the functions that made
//! it.

use std::collections::HashMap;
use std::sync::Arc;

use super::functions::{self, CallEstimate};
use super::{CostEstimate, LIST_CREATE, MAP_CREATE, SELECT_AND_IDENT, STRUCT_CREATE, Size};
use crate::ast::{Comprehension, Expr, ExprId, Literal, Macro, operators};
use crate::check::{Called, Checked, Reference};
use crate::environment::Environment;
use crate::schema::Schema;
use crate::types::Type;

/// Estimates what a checked expression costs.
pub(crate) fn estimate(checked: &Checked, environment: &Environment) -> CostEstimate {
    let mut estimator =
        Estimator { checked, environment, paths: HashMap::new(), sizes: HashMap::new(), entries: HashMap::new(), locals: Vec::new() };
    estimator.cost(checked.ast.root)
}

/// What the cost functions need to know of an argument.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub id: Option<ExprId>,
    pub cel_type: Type,
    path: Path,
    pub size: Option<Size>,
}

/// From a variable to a value: field names, `@items`, `@values`, `@keys`. Empty if there is no such path.
type Path = Vec<Arc<str>>;

/// The sizes of the keys and values of a list or map.
#[derive(Debug, Clone, Copy)]
struct Entry {
    list: bool,
    key: Size,
    value: Size,
}

impl Entry {
    fn union(a: Option<Entry>, b: Option<Entry>) -> Option<Entry> {
        let (a, b) = (a?, b?);
        Some(Entry { list: a.list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }
}

struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<Size>,
    entry: Option<Entry>,
}

pub(super) struct Estimator<'c> {
    checked: &'c Checked,
    environment: &'c Environment,
    paths: HashMap<ExprId, Path>,
    sizes: HashMap<ExprId, Size>,
    entries: HashMap<ExprId, Entry>,
    locals: Vec<Local>,
}

const ONE: CostEstimate = CostEstimate::fixed(SELECT_AND_IDENT);

impl Estimator<'_> {
    /// The size of an argument, or of anything at all.
    pub fn size(&self, node: &Node) -> Size {
        node.size.or_else(|| self.schema_size(&node.path)).unwrap_or(Size::UNKNOWN)
    }

    /// The literal that an argument is.
    pub fn literal(&self, node: &Node) -> Option<&Literal> {
        functions::literal(self.checked.ast.expr(node.id?))
    }

    /// The elements of a list, or the keys of a map.
    pub fn element(&self, node: &Node) -> Option<Node> {
        let cel_type = match &node.cel_type {
            Type::List(element) => (**element).clone(),
            Type::Map(entry) => entry.0.clone(),
            Type::Opaque(_, parameters) => parameters.first()?.clone(),
            _ => return None,
        };
        let mut path = node.path.clone();
        if !path.is_empty() {
            path.push("@items".into());
        }
        Some(Node { id: None, cel_type, path, size: None })
    }

    fn schema_size(&self, path: &Path) -> Option<Size> {
        let (variable, rest) = path.split_first()?;
        let mut schema: &Schema = self.environment.find_schema(variable)?;
        for (i, name) in rest.iter().enumerate() {
            schema = match &**name {
                "@items" | "@values" => schema.element()?,
                // Keys have no bound of their own, which Kubernetes takes for a size of zero.
                "@keys" if schema.element().is_some() && i + 1 == rest.len() => {
                    return Some(Size::fixed(0));
                }
                name => schema.field(name)?,
            };
        }
        Some(Size { min: 0, max: schema.max_elements() })
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|l| *l.name == *name)
    }

    fn path(&self, id: ExprId) -> Path {
        if let Expr::Ident(name) = self.checked.ast.expr(id)
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }

    fn node(&mut self, id: ExprId) -> Node {
        Node { id: Some(id), cel_type: self.checked.type_of(id).clone(), path: self.path(id), size: self.known_size(id) }
    }

    fn known_size(&mut self, id: ExprId) -> Option<Size> {
        if let Some(size) = self.sizes.get(&id) {
            return Some(*size);
        }
        match self.checked.ast.expr(id) {
            Expr::Literal(Literal::String(s)) => {
                return Some(Size::fixed(crate::operations::code_points(s)));
            }
            Expr::Literal(Literal::Bytes(b)) => return Some(Size::fixed(b.len() as u64)),
            Expr::Literal(_) => return Some(Size::ONE),
            Expr::List { items, .. } => return Some(Size::fixed(items.len() as u64)),
            Expr::Map(entries) => return Some(Size::fixed(entries.len() as u64)),
            _ => {}
        }
        if let Some(size) = self.schema_size(&self.path(id)) {
            self.sizes.insert(id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(id)) {
            return Some(Size::ONE);
        }
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.local(name).and_then(|l| l.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, id: ExprId) -> Size {
        self.known_size(id).unwrap_or(Size::UNKNOWN)
    }

    fn entry(&self, id: ExprId) -> Option<Entry> {
        if let Some(entry) = self.entries.get(&id) {
            return Some(*entry);
        }
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.local(name).and_then(|l| l.entry),
            _ => None,
        }
    }

    fn set_entry(&mut self, id: ExprId, entry: Option<Entry>) {
        if let Some(entry) = entry {
            self.entries.insert(id, entry);
        }
    }

    fn set_size(&mut self, id: ExprId, size: Option<Size>) {
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
    }

    fn cost(&mut self, id: ExprId) -> CostEstimate {
        let checked = self.checked;
        match checked.ast.expr(id) {
            Expr::Literal(_) => CostEstimate::ZERO,
            Expr::Ident(name) => {
                let path = match (self.local(name), checked.reference(id)) {
                    (Some(local), _) => local.path.clone(),
                    (None, Reference::Variable(name)) => vec![name.clone()],
                    (None, _) => vec![name.clone()],
                };
                self.paths.insert(id, path);
                ONE
            }
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { .. } => self.call(id),
            Expr::List { items, .. } => {
                let mut sum = CostEstimate::fixed(LIST_CREATE);
                let mut value = Size { min: u64::MAX, max: 0 };
                for item in items {
                    sum = sum.add(self.cost(*item));
                    value = value.union(self.size_or_unknown(*item));
                }
                if items.is_empty() {
                    value.min = 0;
                }
                let entry = Entry { list: true, key: Size::ONE, value };
                self.entries.insert(id, entry);
                sum
            }
            Expr::Map(entries) => {
                let mut sum = CostEstimate::fixed(MAP_CREATE);
                let mut key = Size { min: u64::MAX, max: 0 };
                let mut value = key;
                for entry in entries {
                    sum = sum.add(self.cost(entry.key)).add(self.cost(entry.value));
                    key = key.union(self.size_or_unknown(entry.key));
                    value = value.union(self.size_or_unknown(entry.value));
                }
                if entries.is_empty() {
                    (key.min, value.min) = (0, 0);
                }
                self.entries.insert(id, Entry { list: false, key, value });
                sum
            }
            Expr::Struct { fields, .. } => {
                let mut sum = CostEstimate::fixed(STRUCT_CREATE);
                for field in fields {
                    sum = sum.add(self.cost(field.value));
                }
                sum
            }
            Expr::Comprehension(c) if c.kind == Macro::SortBy => self.sort_by(id, c),
            Expr::Comprehension(c) => self.comprehension(id, c),
            Expr::OptMap { target, var, body, flat } => self.opt_map(id, *target, var, *body, *flat),
        }
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &Arc<str>, test: bool) -> CostEstimate {
        if let Reference::Variable(name) = self.checked.reference(id) {
            self.paths.insert(id, vec![name.clone()]);
            return ONE;
        }
        if let Reference::Type(_) = self.checked.reference(id) {
            return ONE;
        }
        let sum = self.cost(operand);
        if test {
            return sum;
        }
        let mut path = self.path(operand);
        path.push(field.clone());
        self.paths.insert(id, path);
        match self.checked.type_of(operand) {
            Type::Map(_) | Type::Object(_) => sum.add(ONE),
            _ => sum,
        }
    }

    fn call(&mut self, id: ExprId) -> CostEstimate {
        let checked = self.checked;
        let Some(Called { function, target, args, overloads }) = checked.function(id) else {
            return CostEstimate::ZERO;
        };
        if function == "dyn" {
            let cost = self.cost(args[0]);
            let (size, entry) = (self.known_size(args[0]), self.entry(args[0]));
            self.set_size(id, size);
            self.set_entry(id, entry);
            return ONE.add(cost);
        }
        let costs: Vec<CostEstimate> = args.iter().map(|a| self.cost(*a)).collect();
        let nodes: Vec<Node> = args.iter().map(|a| self.node(*a)).collect();
        match function {
            operators::AND | operators::OR => {
                let max = costs.iter().fold(0u64, |sum, c| sum.saturating_add(c.max));
                self.set_size(id, Some(Size::ONE));
                return CostEstimate { min: costs[0].min, max };
            }
            operators::CONDITIONAL => {
                let known = |n: &Node| n.size.unwrap_or(Size::UNKNOWN);
                let size = known(&nodes[1]).union(known(&nodes[2]));
                self.set_entry(id, Entry::union(self.entry(args[1]), self.entry(args[2])));
                self.set_size(id, Some(size));
                return costs[0].add(costs[1].union(costs[2]));
            }
            operators::OPT_SELECT => {
                let sum = costs.iter().fold(ONE, |sum, c| sum.add(*c));
                let size = self.known_size(id);
                self.set_size(id, size);
                return sum;
            }
            _ => {}
        }
        let arguments = costs.iter().fold(CostEstimate::ZERO, |sum, c| sum.add(*c));
        let mut sum = CostEstimate::ZERO;
        let mut target_node = None;
        if let Some(target) = target {
            sum = sum.add(self.cost(target));
            target_node = Some(self.node(target));
        }
        let mut cost = CostEstimate { min: u64::MAX, max: 0 };
        let mut size: Option<Size> = None;
        for overload in overloads {
            let (own, result) = self.overload(id, function, overload.id, target_node.as_ref(), &nodes);
            cost = cost.union(own.add(arguments));
            if let Some(result) = result {
                size = Some(size.map_or(result, |s| s.union(result)));
            }
            let step = match overload.id {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let Some(step) = step {
                size = self.entry(args[0]).map(|e| e.value);
                let mut path = self.path(args[0]);
                path.push(step.into());
                self.paths.insert(id, path);
            }
            if size.is_none() {
                size = self.known_size(id);
            }
        }
        self.set_size(id, size);
        sum.add(cost)
    }

    fn overload(&mut self, id: ExprId, function: &str, overload: &str, target: Option<&Node>, args: &[Node]) -> CallEstimate {
        if let Some(estimate) = functions::of_overload(self, overload, target, args) {
            return estimate;
        }
        if let Some(estimate) = functions::of_kubernetes(self, function, overload, target, args) {
            return estimate;
        }
        if matches!(overload, "add_string" | "add_bytes" | "add_list")
            && let [Some(a), Some(b)] = [args[0].id, args[1].id]
        {
            self.set_entry(id, Entry::union(self.entry(a), self.entry(b)));
        }
        functions::of_language(overload, target, args)
    }

    fn push(&mut self, name: &Arc<str>, path: Path, size: Option<Size>, entry: Option<Entry>) {
        self.locals.push(Local { name: name.clone(), path, size, entry });
    }

    /// Declares the variables of a loop over something.
    fn push_loop_variables(&mut self, range: ExprId, var: &Arc<str>, var2: Option<&Arc<str>>) {
        let entry = self.entry(range);
        let is_list = entry.map_or_else(|| matches!(self.checked.type_of(range), Type::List(_)), |e| e.list);
        let path = self.path(range);
        let below = |step: &str| {
            let mut path = path.clone();
            path.push(step.into());
            path
        };
        let keys = (if is_list { "@indices" } else { "@keys" }, entry.map(|e| e.key));
        let values = (if is_list { "@items" } else { "@values" }, entry.map(|e| e.value));
        match var2 {
            Some(var2) => {
                self.push(var, below(keys.0), keys.1, None);
                self.push(var2, below(values.0), values.1, None);
            }
            None => {
                let (step, size) = if is_list { values } else { keys };
                self.push(var, below(step), size, None);
            }
        }
    }

    /// The loop that a macro stands for, with its accumulator, condition and step.
    fn comprehension(&mut self, id: ExprId, c: &Comprehension) -> CostEstimate {
        let range = self.cost(c.range);
        let outer = self.locals.len();
        self.push_loop_variables(c.range, &c.var, c.var2.as_ref());
        let (condition, step, init, result) = self.loop_costs(c);
        // The size of an element of the result, as long as the variables are known.
        let item = match c.kind {
            Macro::Map => Some(self.size_or_unknown(c.body)),
            Macro::Filter => Some(self.variable_size(c)),
            _ => None,
        };
        self.locals.truncate(outer);
        let count = self.size_or_unknown(c.range);
        match c.kind {
            Macro::All | Macro::Exists | Macro::ExistsOne => self.set_size(id, Some(Size::ONE)),
            _ => self.set_size(id, Some(count)),
        }
        if let Some(item) = item {
            let entry = Entry { list: true, key: Size::ONE, value: Size::fixed(0).union(item) };
            self.entries.insert(id, entry);
        }
        let loops = count.as_cost().multiply(condition.add(step));
        range.add(init).add(result).add(loops)
    }

    /// The size of the variable of the innermost loop.
    fn variable_size(&self, c: &Comprehension) -> Size {
        let element = match self.checked.type_of(c.range) {
            Type::List(element) => Some(&**element),
            Type::Map(entry) => Some(&entry.0),
            _ => None,
        };
        let local = self.local(&c.var);
        let from_schema = local.and_then(|l| self.schema_size(&l.path));
        let from_type = element.filter(|t| is_scalar(t)).map(|_| Size::ONE);
        from_schema.or(from_type).or_else(|| local.and_then(|l| l.size)).unwrap_or(Size::UNKNOWN)
    }

    /// Condition, step, initial value and result of a loop.
    fn loop_costs(&mut self, c: &Comprehension) -> (CostEstimate, CostEstimate, CostEstimate, CostEstimate) {
        let filter = c.filter.map(|f| self.cost(f));
        let body = self.cost(c.body);
        let zero = CostEstimate::ZERO;
        let fixed = CostEstimate::fixed;
        let filtered = |step: CostEstimate| match filter {
            Some(filter) => filter.add(step.union(ONE)),
            None => step,
        };
        match c.kind {
            Macro::All | Macro::Exists => {
                let condition = fixed(if c.kind == Macro::All { 2 } else { 3 });
                let step = CostEstimate { min: 1, max: body.max.saturating_add(1) };
                (condition, step, zero, ONE)
            }
            Macro::ExistsOne => (zero, body.add(fixed(2).union(ONE)), zero, fixed(2)),
            Macro::Filter => {
                let append = fixed(1 + LIST_CREATE + 1 + 1);
                (zero, body.add(append.union(ONE)), fixed(LIST_CREATE), ONE)
            }
            Macro::Map | Macro::SortBy => {
                let append = body.add(fixed(1 + LIST_CREATE + 1));
                (zero, filtered(append), fixed(LIST_CREATE), ONE)
            }
            Macro::TransformMap => (zero, filtered(body.add(fixed(3))), fixed(MAP_CREATE), ONE),
            Macro::TransformMapEntry => (zero, filtered(body.add(fixed(2))), fixed(MAP_CREATE), ONE),
        }
    }

    /// A list bound to a hidden variable, mapped to its keys and sorted by them.
    fn sort_by(&mut self, id: ExprId, c: &Comprehension) -> CostEstimate {
        let target = self.cost(c.range);
        let (path, size, entry) = (self.path(c.range), self.known_size(c.range), self.entry(c.range));
        let outer = self.locals.len();
        self.push_loop_variables(c.range, &c.var, None);
        let (_, step, init, result) = self.loop_costs(c);
        self.locals.truncate(outer);
        let count = size.unwrap_or(Size::UNKNOWN);
        let keys = ONE.add(init).add(result).add(count.as_cost().multiply(step));
        let node = |id, cel_type: Type, path, size| Node { id, cel_type, path, size };
        let target_node = node(Some(c.range), self.checked.type_of(c.range).clone(), path, size);
        let keys_node = node(None, Type::list(self.checked.type_of(c.body).clone()), Vec::new(), Some(count));
        let Reference::Function { overloads, .. } = self.checked.reference(id) else {
            return CostEstimate::ZERO;
        };
        let mut cost = CostEstimate { min: u64::MAX, max: 0 };
        let mut sorted: Option<Size> = None;
        for overload in overloads {
            let (own, size) =
                functions::of_overload(self, overload.id, Some(&target_node), std::slice::from_ref(&keys_node)).unwrap_or((ONE, None));
            cost = cost.union(own.add(keys));
            sorted = match (sorted, size) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
        }
        self.set_size(id, sorted);
        self.set_entry(id, entry);
        // The empty list of the binding, the target, and the hidden variable as the target of the sort.
        CostEstimate::fixed(LIST_CREATE).add(target).add(ONE).add(cost)
    }

    /// `target.hasValue() ? optional.of(bind var = target.value() in body) : optional.none()`
    fn opt_map(&mut self, id: ExprId, target: ExprId, var: &Arc<str>, body: ExprId, flat: bool) -> CostEstimate {
        let target_cost = self.cost(target);
        let inner = match self.checked.type_of(target).unwrap_optional() {
            Some(inner) if is_scalar(inner) => Some(Size::ONE),
            _ => None,
        };
        self.push(var, Vec::new(), inner, None);
        let body_cost = self.cost(body);
        self.locals.pop();
        let condition = target_cost.add(ONE);
        let bind = CostEstimate::fixed(LIST_CREATE).add(target_cost.add(ONE)).add(body_cost);
        let truthy = if flat { bind } else { bind.add(ONE) };
        if flat {
            let size = self.known_size(body);
            self.set_size(id, Some(size.unwrap_or(Size::UNKNOWN).union(Size::UNKNOWN)));
        }
        condition.add(truthy.union(ONE))
    }
}

/// Whether a value of the type has the same size always.
fn is_scalar(t: &Type) -> bool {
    match t {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        other => other.unwrap_optional().is_some_and(is_scalar),
    }
}
