//! Constants of stochastic gradient descent, whose update in place is in [`in_place`](crate::in_place).

/// Stochastic gradient descent with momentum (Sutskever et al. 2013), without dampening, as PyTorch's.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    /// Factor of the velocity; 0 without one.
    pub momentum: f32,
    /// Whether the gradient is that after the momentum's next step.
    pub nesterov: bool,
    /// Multiple of the parameter that is added to its gradient.
    pub weight_decay: f32,
}
