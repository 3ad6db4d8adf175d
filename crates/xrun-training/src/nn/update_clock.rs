//! Updates of parameters in place, with scalars on the device: a captured update is replayed with those of the current step.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::optim::{AdamWState, AdaptiveMomentumState, Optimizer as Rule, RecordState, StateSink, StateSource};
use burn::tensor::Device;
use xrun_ops::{AdamW, in_place};

use super::Tensor;
use xrun_core::settings::sections::Optimizer;

/// Name of the number of updates in the state of a parameter.
pub const TIME: &str = "momentum.time";
/// Name of the velocity in that state.
const VELOCITY: &str = "momentum.velocity";

/// Number of updates of each parameter, and scalars of the next one on the device.
///
/// Parameters that have always been updated together are a group, with scalars of its own.
pub struct UpdateClock {
    settings: Optimizer,
    device: Device,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: Vec<Group>,
    /// Group of each parameter that was updated, by its id.
    group_of: HashMap<u64, usize>,
    /// Moments or velocities in memory of their own, flat.
    moments: Vec<Tensor<1>>,
    /// Updates of parameters without a group, as a checkpoint has them.
    times: HashMap<u64, usize>,
    /// Next parameters of the update that is being computed, in order: groups, and whether their state is not in memory of its own yet.
    turns: VecDeque<(usize, bool)>,
    /// Parameters of the update by group and rule, until they are updated together.
    collected: BTreeMap<(usize, bool), (Apply, Vec<in_place::Update>)>,
    /// Factor of the gradients of the update, `[1]`; `None` is 1.
    factor: Option<Tensor<1>>,
    /// The factor 1, made when it is used first.
    one: Option<Tensor<1>>,
    /// Groups of the update, with factors of the learning rate.
    trail: Vec<(usize, f64)>,
    learning_rate: f64,
    /// The update is recorded: its scalars have been written.
    is_recorded: bool,
    /// A group was divided: graphs read the scalars of the old one.
    has_changed: bool,
}

/// Updates parameters, given their scalars and the factor of their gradients.
type Apply = Box<dyn Fn(&[in_place::Update], &Tensor<1>, &Tensor<1>) + Send>;

struct Group {
    /// Scalars of an update, `[3]`.
    scalars: Tensor<1>,
    time: usize,
}

impl UpdateClock {
    /// Clock for parameters that have not been updated.
    pub fn new(settings: &Optimizer, device: &Device) -> Self {
        Self { settings: settings.clone(), device: device.clone(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.state() = State::default();
    }

    /// Forgets groups and their scalars, not the numbers of updates.
    pub fn reset(&self) {
        let state = &mut *self.state();
        let groups = std::mem::take(&mut state.groups);
        state.moments.clear();
        state.times.extend(state.group_of.drain().map(|(id, group)| (id, groups[group].time)));
    }

    /// Sets moments and numbers of updates back to 0, in their memory. Each parameter that has moments was updated since the last
    /// [`Self::reset`].
    pub fn restart(&self) {
        let state = &mut *self.state();
        state.times.clear();
        state.groups.iter_mut().for_each(|group| group.time = 0);
        in_place::clear(&state.moments);
    }

    /// Number of updates of the parameter with this id; `None` before the first.
    pub fn time(&self, id: &str) -> Option<usize> {
        let (state, id) = (self.state(), id.parse().ok()?);
        let group = state.group_of.get(&id).map(|group| state.groups[*group].time);
        group.or_else(|| state.times.get(&id).copied())
    }

    /// Sets the number of updates of the parameter with this id.
    pub fn loaded(&self, id: &str, time: usize) {
        if let Ok(id) = id.parse() {
            self.state().times.insert(id, time);
        }
    }

    /// Begins an update, which may consist of several calls of [`Self::tick`].
    pub fn begin(&self, learning_rate: f64, is_recorded: bool) {
        let state = &mut *self.state();
        state.trail.clear();
        state.turns.clear();
        state.collected.clear();
        state.factor = None;
        (state.learning_rate, state.is_recorded) = (learning_rate, is_recorded);
    }

    /// Begins the update of parameters, at a learning rate of their own.
    pub fn tick(&self, learning_rate: f64, ids: &[u64]) {
        let state = &mut *self.state();
        let new = |state: &mut State, time| {
            let scalars = in_place::fixed(Tensor::zeros([3], &self.device));
            state.groups.push(Group { scalars, time });
            state.groups.len() - 1
        };
        let known: BTreeSet<usize> = ids.iter().filter_map(|id| state.group_of.get(id).copied()).collect();
        for group in known {
            let updated: Vec<u64> = ids.iter().copied().filter(|id| state.group_of.get(id) == Some(&group)).collect();
            if state.group_of.values().filter(|other| **other == group).count() > updated.len() {
                let part = new(state, state.groups[group].time);
                state.group_of.extend(updated.into_iter().map(|id| (id, part)));
                state.has_changed = true;
            }
        }
        let mut first: BTreeMap<usize, usize> = BTreeMap::new();
        let mut groups = BTreeSet::new();
        for id in ids {
            let known = state.group_of.get(id).copied();
            let group = known.unwrap_or_else(|| {
                let time = state.times.get(id).copied().unwrap_or(0);
                *first.entry(time).or_insert_with(|| new(state, time))
            });
            state.group_of.insert(*id, group);
            state.turns.push_back((group, known.is_none()));
            groups.insert(group);
        }
        let factor = if state.learning_rate == 0.0 { 1.0 } else { learning_rate / state.learning_rate };
        let updated: Vec<(usize, f64)> = groups.into_iter().map(|group| (group, factor)).collect();
        if !state.is_recorded {
            self.write(state, learning_rate, &updated);
        }
        state.trail.extend(updated);
    }

    /// Writes the scalars of the next update, which the device computes by itself.
    pub fn advance(&self, learning_rate: f64, trail: &[(usize, f64)]) {
        let state = &mut *self.state();
        for group in trail {
            self.write(state, learning_rate * group.1, &[*group]);
        }
    }

    fn write(&self, state: &mut State, learning_rate: f64, groups: &[(usize, f64)]) {
        for (group, _) in groups {
            let Group { scalars, time } = &mut state.groups[*group];
            *time += 1;
            let values = match &self.settings {
                Optimizer::AdamW(adamw) => {
                    let rule = AdamW::new(adamw.beta_1 as f32, adamw.beta_2 as f32, adamw.epsilon as f32, 0.0);
                    rule.scalars(learning_rate, *time)
                }
                Optimizer::Sgd(_) => [learning_rate as f32, 1.0, 1.0],
            };
            in_place::write(scalars, values.to_vec());
        }
    }

    /// Groups of the last update, with factors of the learning rate.
    pub fn take_trail(&self) -> Vec<(usize, f64)> {
        std::mem::take(&mut self.state().trail)
    }

    /// Returns whether a group was divided since the last call.
    pub fn take_changed(&self) -> bool {
        std::mem::take(&mut self.state().has_changed)
    }

    /// Sets the factor of the gradients of the update that was begun, `[1]`.
    pub fn scale_gradients(&self, factor: Tensor<1>) {
        self.state().factor = Some(factor);
    }

    /// State of a parameter in memory of its own: zeros at first.
    fn own<const D: usize>(&self, state: Option<Tensor<D>>, is_new: bool, parameter: &Tensor<D>) -> Tensor<D> {
        let own = match state {
            Some(state) if !is_new => return state,
            Some(state) => {
                // Of a checkpoint; the kernels would read and write beyond a smaller one.
                assert_eq!(
                    state.dims(),
                    parameter.dims(),
                    "the state of an optimiser has another shape than its parameter"
                );
                in_place::fixed(state)
            }
            None => in_place::fixed(parameter.zeros_like()),
        };
        self.state().moments.push(own.clone().reshape([-1]));
        own
    }

    /// Group of the next parameter, and whether its state is not in memory of its own yet.
    fn turn(&self) -> (usize, bool) {
        self.state().turns.pop_front().unwrap_or_else(|| unreachable!("each parameter with a gradient has its turn"))
    }

    /// Notes the update of a parameter of a group. `has_decay` tells the rules of one optimiser apart.
    fn collect(&self, group: usize, has_decay: bool, update: in_place::Update, apply: impl FnOnce() -> Apply) {
        let state = &mut *self.state();
        state.collected.entry((group, has_decay)).or_insert_with(|| (apply(), Vec::new())).1.push(update);
    }

    /// Updates the parameters since the last call.
    pub fn apply(&self) {
        let State { collected, factor, one, groups, .. } = &mut *self.state();
        for ((group, _), (apply, updates)) in std::mem::take(collected) {
            let factor = factor
                .clone()
                .unwrap_or_else(|| one.get_or_insert_with(|| in_place::fixed(Tensor::ones([1], &self.device))).clone());
            apply(&updates, &groups[group].scalars, &factor);
        }
    }
}

/// Update rule in place.
#[derive(Clone)]
pub struct InPlace<R> {
    /// Constants of the rule.
    pub rule: R,
    /// Scalars of its updates.
    pub clock: Arc<UpdateClock>,
}

impl Rule for InPlace<AdamW> {
    type State<const D: usize> = AdamWState<D>;

    fn step<const D: usize>(
        &self,
        _: f64,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdamWState<D>>,
    ) -> (Tensor<D>, Option<AdamWState<D>>) {
        let (group, is_new) = self.clock.turn();
        let (first, second) = state.map(|state| (state.momentum.moment_1, state.momentum.moment_2)).unzip();
        let (first, second) = (self.clock.own(first, is_new, &parameter), self.clock.own(second, is_new, &parameter));
        let rule = self.rule.clone();
        self.clock.collect(group, D > 1, in_place::Update::new(&parameter, gradient, &[&first, &second]), || {
            Box::new(move |updates, scalars, factor| rule.step_in_place(updates, scalars, factor))
        });
        // The clock has the number of updates.
        (parameter, Some(AdamWState::new(AdaptiveMomentumState::new(0, first, second))))
    }

    fn to_device<const D: usize>(state: AdamWState<D>, device: &Device) -> AdamWState<D> {
        <AdamW as Rule>::to_device(state, device)
    }
}

/// State of [`in_place::Sgd`], with the names of burn-optim's in a record.
#[derive(Clone)]
pub struct SgdState<const D: usize> {
    velocity: Option<Tensor<D>>,
}

impl<const D: usize> RecordState for SgdState<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        if let Some(velocity) = &self.velocity {
            out.push_tensor(prefix, VELOCITY, velocity.to_data());
        }
    }

    fn state_unflatten(prefix: &str, from: &mut StateSource, device: &Device) -> Option<Self> {
        Some(Self { velocity: from.take_tensor(prefix, VELOCITY).map(|data| Tensor::from_data(data, device)) })
    }
}

impl Rule for InPlace<in_place::Sgd> {
    type State<const D: usize> = SgdState<D>;

    fn step<const D: usize>(
        &self,
        _: f64,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<SgdState<D>>,
    ) -> (Tensor<D>, Option<SgdState<D>>) {
        let (group, is_new) = self.clock.turn();
        let velocity = state.and_then(|state| state.velocity);
        let velocity = (self.rule.momentum > 0.0).then(|| self.clock.own(velocity, is_new, &parameter));
        let (rule, state) = (self.rule, velocity.as_ref());
        self.clock.collect(group, D > 1, in_place::Update::new(&parameter, gradient, state.as_slice()), || {
            Box::new(move |updates, scalars, factor| rule.step_in_place(updates, scalars, factor))
        });
        (parameter, Some(SgdState { velocity }))
    }

    fn to_device<const D: usize>(state: SgdState<D>, device: &Device) -> SgdState<D> {
        SgdState { velocity: state.velocity.map(|velocity| velocity.to_device(device)) }
    }
}
