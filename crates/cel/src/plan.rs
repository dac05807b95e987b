//! From a checked expression to the form that is evaluated: names become slots, chains of selections become one
//! step, constants are folded where Kubernetes folds them (which the runtime cost depends on), constant regular
//! expressions are compiled, and membership in constant lists becomes a lookup.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use crate::ast::{Comprehension, Expr, ExprId, Literal, Macro, operators};
use crate::check::{Called, Checked, Reference};
use crate::cost::runtime::Charge;
use crate::declarations::Overload;
use crate::environment::{Environment, VARIABLES};
use crate::error::{EvalError, failed};
use crate::library;
use crate::meter::Meter;
use crate::schema::Schema;
use crate::types::Type;
use crate::value::{Entries, List, Value};

/// A step of a program.
#[derive(Debug)]
pub(crate) struct Node {
    pub id: ExprId,
    pub kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Const(Value<'static>),
    Attribute(Box<Attribute>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Equal {
        operands: Box<[Node; 2]>,
        equals: bool,
    },
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary {
        operator: Binary,
        charge: Charge,
        operands: Box<[Node; 2]>,
    },
    /// `x in [constants]`
    InConstants {
        item: Box<Node>,
        set: Box<Entries<'static>>,
    },
    Call(Box<Call>),
    /// `a.or(b)`, or `a.orValue(b)` which unwraps.
    OptionalOr {
        operands: Box<[Node; 2]>,
        unwrap: bool,
    },
    List {
        items: Box<[Node]>,
        optional: Box<[usize]>,
    },
    Map(Box<[MapEntry]>),
    Struct {
        name: Arc<str>,
        fields: Box<[StructField]>,
    },
    Fold(Box<Fold>),
    OptMap(Box<OptMap>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    In,
}

/// A variable, a loop variable or any other value, and the selections made from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub root: Root,
    pub qualifiers: Vec<Qualifier>,
    /// Whether the last selection only asks if the field is there.
    pub test: bool,
    /// Whether reading it costs one. In the branches of a ternary operator and as an index it does not.
    pub charged: bool,
    /// The names of the fields, if there is nothing else to a chain that starts at a variable.
    pub fields: Option<Vec<Arc<str>>>,
}

impl Attribute {
    fn new(root: Root) -> Self {
        let plain = matches!(root, Root::Variable(_) | Root::Local(_));
        Attribute {
            charged: !matches!(root, Root::Conditional(_)),
            fields: plain.then(Vec::new),
            root,
            qualifiers: Vec::new(),
            test: false,
        }
    }

    fn push(&mut self, qualifier: Qualifier) {
        match (&mut self.fields, &qualifier.key) {
            (Some(fields), Key::Field(name)) if !qualifier.optional => fields.push(name.clone()),
            _ => self.fields = None,
        }
        self.qualifiers.push(qualifier);
    }
}

#[derive(Debug)]
pub(crate) enum Root {
    Variable(usize),
    Local(usize),
    /// The variable of `optMap`, whose value is paid for when it is first read.
    Lazy(usize),
    Operand(Node),
    Conditional(Box<[Node; 3]>),
    /// `variables.name`
    PolicyVariable(Arc<str>),
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub id: ExprId,
    pub key: Key,
    pub optional: bool,
}

#[derive(Debug)]
pub(crate) enum Key {
    Field(Arc<str>),
    Const(Value<'static>),
    Computed(Node),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub function: &'static str,
    pub overloads: Vec<&'static Overload>,
    pub args: Box<[Node]>,
    pub charge: Charge,
    /// Whether arguments after a failed one are not evaluated.
    pub stops: bool,
    pub regex: Option<Regex>,
}

impl std::fmt::Debug for Overload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub key: Node,
    pub value: Node,
    pub optional: bool,
}

#[derive(Debug)]
pub(crate) struct StructField {
    pub name: Arc<str>,
    pub value: Node,
    pub optional: bool,
}

/// A loop.
#[derive(Debug)]
pub(crate) struct Fold {
    pub kind: Macro,
    pub range: Node,
    /// Where the first variable is; the second one follows it.
    pub slot: usize,
    pub two: bool,
    pub filter: Option<Node>,
    pub body: Node,
    /// For `sortBy`: how the sort is charged.
    pub charge: Charge,
}

#[derive(Debug)]
pub(crate) struct OptMap {
    pub target: Node,
    pub slot: usize,
    pub body: Node,
    pub flat: bool,
}

/// A planned expression.
#[derive(Debug)]
pub(crate) struct Plan {
    pub root: Node,
    /// The variables by slot, with the schema of their JSON.
    pub variables: Vec<(Arc<str>, Option<Arc<Schema>>)>,
    /// How many loop variables are alive at most.
    pub locals: usize,
}

pub(crate) fn plan(checked: &Checked, environment: &Environment) -> Result<Plan, EvalError> {
    let mut planner = Planner { checked, environment, variables: Vec::new(), slots: HashMap::new(), locals: Vec::new(), most_locals: 0 };
    let root = planner.node(checked.ast.root)?;
    Ok(Plan { root, variables: planner.variables, locals: planner.most_locals })
}

type Planned<T> = Result<T, EvalError>;

struct Planner<'c> {
    checked: &'c Checked,
    environment: &'c Environment,
    variables: Vec<(Arc<str>, Option<Arc<Schema>>)>,
    slots: HashMap<Arc<str>, usize>,
    /// Names of loop variables by slot, and whether they are lazy.
    locals: Vec<(Arc<str>, bool)>,
    most_locals: usize,
}

impl Planner<'_> {
    fn node(&mut self, id: ExprId) -> Planned<Node> {
        let checked = self.checked;
        let kind = match checked.ast.expr(id) {
            Expr::Literal(literal) => Kind::Const(constant(literal)),
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test)?,
            Expr::Call { .. } => self.call(id)?,
            Expr::List { items, optional } => self.list(items, optional)?,
            Expr::Map(entries) => {
                let mut planned = Vec::with_capacity(entries.len());
                for entry in entries {
                    planned.push(MapEntry { key: self.node(entry.key)?, value: self.node(entry.value)?, optional: entry.optional });
                }
                fold_map(planned)
            }
            Expr::Struct { name, fields } => {
                let mut planned = Vec::with_capacity(fields.len());
                for field in fields {
                    planned.push(StructField { name: field.key.clone(), value: self.node(field.value)?, optional: field.optional });
                }
                let name = name.strip_prefix('.').map_or_else(|| name.clone(), Arc::from);
                Kind::Struct { name, fields: planned.into() }
            }
            Expr::Comprehension(c) => self.fold(id, c)?,
            Expr::OptMap { target, var, body, flat } => {
                let target = self.node(*target)?;
                let slot = self.enter(var, true);
                let body = self.node(*body)?;
                self.locals.truncate(slot);
                Kind::OptMap(Box::new(OptMap { target, slot, body, flat: *flat }))
            }
        };
        Ok(Node { id, kind })
    }

    fn enter(&mut self, name: &Arc<str>, lazy: bool) -> usize {
        self.locals.push((name.clone(), lazy));
        self.most_locals = self.most_locals.max(self.locals.len());
        self.locals.len() - 1
    }

    fn ident(&mut self, id: ExprId, name: &str) -> Kind {
        if let Some(slot) = self.locals.iter().rposition(|(n, _)| **n == *name) {
            let lazy = self.locals[slot].1;
            return attribute(if lazy { Root::Lazy(slot) } else { Root::Local(slot) });
        }
        self.name(id).unwrap_or(Kind::Const(Value::Null))
    }

    /// A node that the checker found to be a variable or a type.
    fn name(&mut self, id: ExprId) -> Option<Kind> {
        match self.checked.reference(id) {
            Reference::Type(t) => Some(Kind::Const(Value::Type(Arc::new(t.clone())))),
            Reference::Variable(name) => {
                let slot = match self.slots.get(name) {
                    Some(slot) => *slot,
                    None => {
                        let schema = self.environment.find_schema(name).cloned();
                        self.variables.push((name.clone(), schema));
                        self.slots.insert(name.clone(), self.variables.len() - 1);
                        self.variables.len() - 1
                    }
                };
                Some(attribute(Root::Variable(slot)))
            }
            _ => None,
        }
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &Arc<str>, test: bool) -> Planned<Kind> {
        if let Some(kind) = self.name(id) {
            return Ok(kind);
        }
        if matches!(self.checked.reference(operand), Reference::Variable(name) if &**name == VARIABLES) {
            let mut attribute = Attribute::new(Root::PolicyVariable(field.clone()));
            attribute.test = test;
            return Ok(Kind::Attribute(Box::new(attribute)));
        }
        let qualifier = Qualifier { id, key: Key::Field(field.clone()), optional: false };
        let mut attribute = self.qualified(operand, qualifier)?;
        attribute.test = test;
        Ok(Kind::Attribute(attribute))
    }

    fn qualified(&mut self, operand: ExprId, qualifier: Qualifier) -> Planned<Box<Attribute>> {
        let operand = self.node(operand)?;
        let mut attribute = match operand.kind {
            Kind::Attribute(attribute) if !attribute.test => attribute,
            kind => Box::new(Attribute::new(Root::Operand(Node { id: operand.id, kind }))),
        };
        attribute.push(qualifier);
        Ok(attribute)
    }

    fn list(&mut self, items: &[ExprId], optional: &[usize]) -> Planned<Kind> {
        let planned: Vec<Node> = items.iter().map(|i| self.node(*i)).collect::<Planned<_>>()?;
        if optional.is_empty() && planned.iter().all(is_const) {
            let values: Vec<Value<'static>> = planned.into_iter().filter_map(into_const).collect();
            return Ok(Kind::Const(Value::List(values.into())));
        }
        Ok(Kind::List { items: planned.into(), optional: optional.into() })
    }

    fn call(&mut self, id: ExprId) -> Planned<Kind> {
        let checked = self.checked;
        let Some(Called { function, target, args, overloads }) = checked.function(id) else {
            return Ok(Kind::Const(Value::Null));
        };
        match function {
            operators::INDEX | operators::OPT_INDEX => {
                return self.index(id, args, function == operators::OPT_INDEX);
            }
            operators::OPT_SELECT => {
                let Expr::Literal(Literal::String(field)) = checked.ast.expr(args[1]) else {
                    return Err(failed("unsupported optional field selection"));
                };
                let qualifier = Qualifier { id, key: Key::Field(field.clone()), optional: true };
                return self.qualified(args[0], qualifier).map(Kind::Attribute);
            }
            _ => {}
        }
        let mut planned: Vec<Node> = target.iter().chain(args).map(|a| self.node(*a)).collect::<Planned<_>>()?;
        match function {
            operators::AND => return Ok(Kind::And(planned.into())),
            operators::OR => return Ok(Kind::Or(planned.into())),
            operators::CONDITIONAL => {
                if let Ok([condition, truthy, falsy]) = <[Node; 3]>::try_from(planned) {
                    let branches = Box::new([condition, uncharged(truthy), uncharged(falsy)]);
                    return Ok(attribute(Root::Conditional(branches)));
                }
                return Err(failed("no such overload"));
            }
            _ => {}
        }
        let overload = match overloads {
            [only] => Some(only.id),
            _ => None,
        };
        if planned.len() == 2 {
            match self.operator(function, overload, planned)? {
                Ok(kind) => return Ok(kind),
                Err(back) => planned = back,
            }
        }
        if planned.len() == 1 {
            let operand = planned.swap_remove(0);
            match function {
                operators::NOT => return Ok(Kind::Not(Box::new(operand))),
                operators::NEGATE => return Ok(Kind::Negate(Box::new(operand))),
                _ => {}
            }
            if is_const(&operand) && is_conversion(function) {
                return fold_conversion(overloads, operand);
            }
            planned.push(operand);
        }
        self.function(function, overload, overloads, planned)
    }

    /// Operators with two operands; gives the operands back if it is something else.
    fn operator(&mut self, function: &str, overload: Option<&str>, operands: Vec<Node>) -> Planned<Result<Kind, Vec<Node>>> {
        let operator = match function {
            operators::ADD => Binary::Add,
            operators::SUBTRACT => Binary::Subtract,
            operators::MULTIPLY => Binary::Multiply,
            operators::DIVIDE => Binary::Divide,
            operators::MODULO => Binary::Modulo,
            operators::LESS => Binary::Less,
            operators::LESS_EQUALS => Binary::LessEquals,
            operators::GREATER => Binary::Greater,
            operators::GREATER_EQUALS => Binary::GreaterEquals,
            operators::IN => Binary::In,
            operators::EQUALS | operators::NOT_EQUALS => Binary::Add,
            "or" | "orValue" => Binary::Add,
            _ => return Ok(Err(operands)),
        };
        let Ok(operands) = <[Node; 2]>::try_from(operands) else {
            return Err(failed("no such overload"));
        };
        Ok(Ok(match function {
            operators::EQUALS | operators::NOT_EQUALS => {
                Kind::Equal { operands: Box::new(operands), equals: function == operators::EQUALS }
            }
            "or" | "orValue" => Kind::OptionalOr { operands: Box::new(operands), unwrap: function == "orValue" },
            operators::IN if overload == Some("in_list") => membership(operands),
            _ => Kind::Binary { operator, charge: Charge::of(function, overload), operands: Box::new(operands) },
        }))
    }

    fn function(&mut self, function: &str, overload: Option<&str>, overloads: &[&'static Overload], args: Vec<Node>) -> Planned<Kind> {
        let regex = match (function, args.get(1).map(|a| &a.kind)) {
            ("matches" | "find" | "findAll", Some(Kind::Const(Value::String(pattern)))) => {
                Some(library::regex::compile(pattern).map_err(failed)?)
            }
            _ => None,
        };
        let declared = crate::declarations::find(function, true).ok_or_else(|| failed("no such overload"))?;
        let stops = args.len() > 2 || overload.is_none() || regex.is_some() || overload == Some("string_format");
        let candidates = if overloads.len() == 1 {
            overloads.to_vec()
        } else {
            declared.overloads.iter().filter(|o| o.parameters.len() == args.len()).collect()
        };
        Ok(Kind::Call(Box::new(Call {
            function: declared.name,
            overloads: candidates,
            args: args.into(),
            charge: Charge::of(function, overload),
            stops,
            regex,
        })))
    }

    fn index(&mut self, id: ExprId, args: &[ExprId], optional: bool) -> Planned<Kind> {
        let key = self.node(args[1])?;
        let key = match key.kind {
            Kind::Const(Value::String(name)) => Key::Field((&*name).into()),
            Kind::Const(value @ (Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_))) => Key::Const(value),
            Kind::Const(other) => {
                return Err(failed(format!("invalid qualifier type: {}", go_type(&other))));
            }
            _ => Key::Computed(uncharged(key)),
        };
        let qualifier = Qualifier { id, key, optional };
        self.qualified(args[0], qualifier).map(Kind::Attribute)
    }

    fn fold(&mut self, id: ExprId, c: &Comprehension) -> Planned<Kind> {
        let range = self.node(c.range)?;
        let slot = self.enter(&c.var, false);
        if let Some(var2) = &c.var2 {
            self.enter(var2, false);
        }
        let filter = c.filter.map(|f| self.node(f)).transpose()?;
        let body = self.node(c.body)?;
        self.locals.truncate(slot);
        let charge = match self.checked.reference(id) {
            Reference::Function { name, overloads, .. } => match overloads[..] {
                [only] => Charge::of(name, Some(only.id)),
                _ => Charge::Fixed(1),
            },
            _ => Charge::Fixed(0),
        };
        Ok(Kind::Fold(Box::new(Fold { kind: c.kind, range, slot, two: c.var2.is_some(), filter, body, charge })))
    }
}

fn attribute(root: Root) -> Kind {
    Kind::Attribute(Box::new(Attribute::new(root)))
}

/// The node without the charge for reading it, if it is one that reads.
fn uncharged(mut node: Node) -> Node {
    if let Kind::Attribute(attribute) = &mut node.kind {
        attribute.charged = false;
    }
    node
}

fn is_const(node: &Node) -> bool {
    matches!(node.kind, Kind::Const(_))
}

fn into_const(node: Node) -> Option<Value<'static>> {
    match node.kind {
        Kind::Const(value) => Some(value),
        _ => None,
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(b) => Value::Bool(*b),
        Literal::Int(i) => Value::Int(*i),
        Literal::Uint(u) => Value::Uint(*u),
        Literal::Double(d) => Value::Double(*d),
        Literal::String(s) => Value::string(s.clone()),
        Literal::Bytes(b) => Value::Bytes(b.clone()),
    }
}

fn is_conversion(function: &str) -> bool {
    matches!(function, "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint")
}

fn fold_conversion(overloads: &[&'static Overload], operand: Node) -> Planned<Kind> {
    let (Some(overload), Some(value)) = (overloads.first(), into_const(operand)) else {
        return Err(failed("no such overload"));
    };
    (overload.call)(&mut Meter::for_constants(), &[value]).map(Kind::Const)
}

fn fold_map(entries: Vec<MapEntry>) -> Kind {
    if !entries.iter().all(|e| is_const(&e.key) && is_const(&e.value) && !e.optional) {
        return Kind::Map(entries.into());
    }
    let mut map = Entries::default();
    for entry in entries {
        if let (Some(key), Some(value)) = (into_const(entry.key), into_const(entry.value)) {
            map.insert(key, value);
        }
    }
    Kind::Const(Value::Map(map.into()))
}

/// `x in list`, with a lookup if the list is constant and of scalars.
fn membership(operands: [Node; 2]) -> Kind {
    let scalar = |v: &Value<'_>| matches!(v, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_));
    let [item, list] = operands;
    match list.kind {
        Kind::Const(Value::List(List::Values(values))) if values.is_empty() => Kind::Const(Value::Bool(false)),
        Kind::Const(Value::List(List::Values(values))) if values.iter().all(scalar) => {
            let mut set = Entries::default();
            for value in values.iter() {
                set.insert(value.clone(), Value::Null);
            }
            Kind::InConstants { item: Box::new(item), set: Box::new(set) }
        }
        kind => Kind::Binary {
            operator: Binary::In,
            charge: Charge::of(operators::IN, Some("in_list")),
            operands: Box::new([item, Node { id: list.id, kind }]),
        },
    }
}

/// The name of a value's type in Kubernetes' own code, which one message shows.
fn go_type(value: &Value<'_>) -> &'static str {
    match value.type_of() {
        Type::Bytes => "types.Bytes",
        Type::Null => "types.Null",
        Type::Duration => "types.Duration",
        Type::Timestamp => "types.Timestamp",
        Type::List(_) => "*types.baseList",
        Type::Map(_) => "*types.baseMap",
        _ => "*types.Type",
    }
}
