//! Temporary: facts about Burn 0.22.1's graph.
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use burn_flex::FlexTensor;

use crate::operation::{Operation, unary};

/// Waits in its backward pass until two threads are there, or a second has passed.
#[derive(Clone, Debug)]
struct Meet(Arc<(Mutex<usize>, Condvar)>, Arc<Mutex<Vec<bool>>>);

impl Operation<1> for Meet {
    type Saved = ();
    fn forward(&self, [input]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<()>) {
        (input, save.then_some(()))
    }
    fn backward(&self, (): (), gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let mut there = self.0.0.lock().unwrap();
        *there += 1;
        self.0.1.notify_all();
        let (there, _) = self.0.1.wait_timeout_while(there, Duration::from_secs(1), |there| *there < 2).unwrap();
        self.1.lock().unwrap().push(*there >= 2);
        [Some(gradient)]
    }
}

fn meet(name: &str, leaves: [Tensor<1>; 2]) {
    let meet = Meet(Arc::default(), Arc::default());
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for leaf in leaves {
            let (meet, barrier) = (meet.clone(), &barrier);
            scope.spawn(move || {
                let output: Tensor<1> = unary(meet, leaf * 2.0);
                barrier.wait();
                output.sum().backward();
            });
        }
    });
    let met = meet.1.lock().unwrap();
    println!("{name}: backward passes of two threads ran at the same time: {met:?}");
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4 / 1024
}

#[test]
#[ignore]
fn facts() {
    let device = Device::flex().autodiff();
    let leaf = || Tensor::<1>::ones([4], &device).require_grad();
    meet("two leaves", [leaf(), leaf()]);
    let shared = leaf();
    meet("one shared leaf", [shared.clone(), shared.clone()]);
    meet("detached and made a leaf again", [shared.clone().detach().require_grad(), shared.detach().require_grad()]);
    println!("resident before: {} MiB", resident());
    for _ in 0..50 {
        let _ = Tensor::<1>::ones([1 << 20], &device).require_grad();
    }
    println!("after 50 dropped leaves of 4 MiB: {} MiB", resident());
    for _ in 0..50 {
        let leaf = Tensor::<1>::ones([1 << 20], &device).require_grad();
        let _ = leaf.clone() * leaf;
    }
    println!("after 50 dropped products of 4 MiB (8 MiB saved each): {} MiB", resident());
    leaf().sum().backward();
    println!("after a backward pass of another graph: {} MiB", resident());
    // A parameter that stays, and graphs upon it that are dropped.
    let parameter = Tensor::<1>::ones([1 << 20], &device).require_grad();
    for _ in 0..50 {
        let _ = (parameter.clone() * Tensor::<1>::ones([1 << 20], &device)).exp();
    }
    println!("after 50 dropped graphs upon a parameter that stays: {} MiB", resident());
    leaf().sum().backward();
    println!("after a backward pass of another graph: {} MiB", resident());
    parameter.clone().sum().backward();
    println!("after a backward pass of a graph upon the parameter: {} MiB", resident());
}
