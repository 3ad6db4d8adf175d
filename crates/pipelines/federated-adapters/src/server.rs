//! Aggregation of the nodes' adapters by the server: FedAvg (McMahan et al. 2017), FedAvgM (Hsu et al. 2019) and FedAdam
//! (Reddi et al. 2021), on the host in 32-bit floats.
//!
//! The server holds one running sum and never the results of all nodes, which exhausted the memory of other servers
//! (docs/origins.md).

use super::settings::Server as Rule;

/// Weighted sum of the results of a round, and their spread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundSum {
    /// Sum of the adapters; empty before the first result.
    pub values: Vec<f32>,
    /// Number of results.
    pub count: u64,
    /// Sum of the squared distances of results from the start of the round.
    pub squared_distance: f64,
}

impl RoundSum {
    /// Adds a result with its weight; the weights of a round sum to one. The first result is assigned, which leaves a single
    /// node's result unchanged to the bit.
    pub fn add(&mut self, result: Vec<f32>, weight: f64, start: &[f32]) {
        let distances = result.iter().zip(start).map(|(one, other)| f64::from(one - other).powi(2));
        self.squared_distance += distances.sum::<f64>();
        self.count += 1;
        let weight = weight as f32;
        if self.values.is_empty() {
            self.values = result;
            if weight != 1.0 {
                self.values.iter_mut().for_each(|value| *value *= weight);
            }
        } else {
            self.values.iter_mut().zip(result).for_each(|(sum, value)| *sum += weight * value);
        }
    }

    /// RMS distance of the results from their mean, relative to the norm of the mean; `None` without results.
    pub fn drift(&self, mean: &[f32], start: &[f32]) -> Option<f64> {
        let moved: f64 = mean.iter().zip(start).map(|(mean, start)| f64::from(mean - start).powi(2)).sum();
        let length = mean.iter().map(|mean| f64::from(*mean).powi(2)).sum::<f64>().sqrt();
        let variance = self.squared_distance / self.count as f64 - moved;
        (self.count > 0 && length > 0.0).then(|| variance.max(0.0).sqrt() / length)
    }
}

/// Global adapters and the state of the server's rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    rule: Rule,
    /// Adapters at the start of a round.
    pub global: Vec<f32>,
    /// First moment; empty before the first round or if the rule has none.
    pub momentum: Vec<f32>,
    /// Second moment; empty before the first round or if the rule has none.
    pub squares: Vec<f32>,
}

impl Server {
    /// Server before the first round.
    pub fn new(rule: Rule, global: Vec<f32>) -> Self {
        Self { rule, global, momentum: Vec::new(), squares: Vec::new() }
    }

    /// Number of moments of a rule, each of the size of the adapters.
    pub fn copies(rule: &Rule) -> u64 {
        match rule {
            Rule::Average(_) => 0,
            Rule::Momentum(_) => 1,
            Rule::Adam(_) => 2,
        }
    }

    /// Updates the global adapters by the mean of a round.
    pub fn apply(&mut self, mean: Vec<f32>) {
        match &self.rule {
            Rule::Average(_) => self.global = mean,
            Rule::Momentum(rule) => {
                // w + η (β v + m - w), written so that β = 0 and η = 1 leave the mean as it is.
                let (rate, momentum) = (rule.learning_rate as f32, rule.momentum as f32);
                self.momentum.resize(mean.len(), 0.0);
                for ((global, velocity), mean) in self.global.iter_mut().zip(&mut self.momentum).zip(mean) {
                    let difference = mean - *global;
                    let before = *velocity;
                    *velocity = momentum * before + difference;
                    *global = mean + (rate * momentum * before + (rate - 1.0) * difference);
                }
            }
            Rule::Adam(rule) => {
                let (rate, tau) = (rule.learning_rate as f32, rule.tau as f32);
                let (beta_1, beta_2) = (rule.beta_1 as f32, rule.beta_2 as f32);
                self.momentum.resize(mean.len(), 0.0);
                self.squares.resize(mean.len(), 0.0);
                let moments = self.momentum.iter_mut().zip(&mut self.squares);
                for ((global, (momentum, squares)), mean) in self.global.iter_mut().zip(moments).zip(mean) {
                    let difference = mean - *global;
                    *momentum = beta_1 * *momentum + (1.0 - beta_1) * difference;
                    *squares = beta_2 * *squares + (1.0 - beta_2) * difference * difference;
                    *global += rate * *momentum / (squares.sqrt() + tau);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_by_hand() {
        let start = [0.0, 0.0];
        let mut sum = RoundSum::default();
        assert_eq!(sum.drift(&[1.0, 1.0], &start), None, "no results");
        sum.add(vec![3.0, 0.0], 0.5, &start);
        assert_eq!(sum.drift(&[3.0, 0.0], &start), Some(0.0), "a single result is its own mean");
        sum.add(vec![3.0, 8.0], 0.5, &start);
        // The mean (3, 4) has norm 5, and both results are 4 away.
        assert!((sum.drift(&sum.values, &start).unwrap() - 0.8).abs() < 1e-9);
    }

    /// Oracle: Flower's servers, `tests/reference/federated.py`.
    #[test]
    fn models_equal_those_of_flower() {
        let all: serde_json::Value =
            serde_json::from_str(include_str!("../../../../tests/reference/federated.json")).unwrap();
        let row = |value: &serde_json::Value| -> Vec<f32> {
            value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
        };
        for case in all["cases"].as_array().unwrap() {
            let rule: Rule = serde_json::from_value(case["server"].clone()).unwrap();
            let clips = row(&case["clips"]);
            let mut server = Server::new(rule, row(&all["start"]));
            for (results, expected) in all["rounds"].as_array().unwrap().iter().zip(case["models"].as_array().unwrap())
            {
                let mut sum = RoundSum::default();
                for (result, count) in results.as_array().unwrap().iter().zip(&clips) {
                    let weight = f64::from(*count) / f64::from(clips.iter().sum::<f32>());
                    sum.add(row(result), weight, &server.global);
                }
                server.apply(sum.values);
                for (found, expected) in server.global.iter().zip(row(expected)) {
                    assert!((found - expected).abs() < 1e-6, "{}: {found}, expected {expected}", case["server"]);
                }
            }
        }
    }
}
