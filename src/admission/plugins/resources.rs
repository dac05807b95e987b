//! Amounts of compute resources: as lists of requests and limits have them, and added up over a Pod. For LimitRanger and ResourceQuota.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::schema::quantity::Quantity;

/// Resources and how much of them.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads a resource list; what is no quantity is left out.
pub fn amounts(list: &Value) -> Amounts {
    let read = |value: &Value| match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    };
    list.as_object().into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), read(value)?))).collect()
}

/// Adds amounts to others.
pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or(*amount, |had| had.plus(*amount));
        to.insert(name.clone(), sum);
    }
}

/// Takes the larger of each.
pub fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|had| had.nanos() < amount.nanos()) {
            to.insert(name.clone(), *amount);
        }
    }
}

/// What a Pod asks for (`requests`) or may use (`limits`) at most: its containers together with the sidecars, or the largest init
/// container on its own together with the sidecars started before it; and what the Pod says for itself counts more than both.
pub fn pod_amounts(spec: &Value, field: &str) -> Amounts {
    let mut total = Amounts::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        add(&mut total, &amounts(&container["resources"][field]));
    }
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in spec["initContainers"].as_array().into_iter().flatten() {
        let own = amounts(&container["resources"][field]);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut largest, &sidecars);
        } else {
            let mut here = sidecars.clone();
            add(&mut here, &own);
            raise(&mut largest, &here);
        }
    }
    raise(&mut total, &largest);
    for (name, amount) in amounts(&spec["resources"][field]) {
        total.insert(name, amount);
    }
    let overhead = amounts(&spec["overhead"]);
    // Overhead is on top of what is asked for; a limit only grows where there is one.
    for (name, amount) in overhead {
        match total.get(&name).copied() {
            Some(had) => {
                total.insert(name, had.plus(amount));
            }
            None if field == "requests" => {
                total.insert(name, amount);
            }
            None => {}
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn init_containers_count_one_at_a_time_and_sidecars_all_the_time() {
        let container = |cpu: &str, sidecar: bool| {
            let mut container = json!({"resources": {"requests": {"cpu": cpu}}});
            if sidecar {
                container["restartPolicy"] = json!("Always");
            }
            container
        };
        let spec = json!({
            "containers": [container("100m", false), container("200m", false)],
            "initContainers": [container("1", false), container("50m", true), container("2", false)],
        });
        assert_eq!(pod_amounts(&spec, "requests")["cpu"].to_string(), "2050m");
    }
}
