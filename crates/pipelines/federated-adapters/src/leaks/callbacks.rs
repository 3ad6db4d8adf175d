//! Leaks of federated trainers (docs/origins.md) as they can happen with Burn; off by default.

use std::collections::HashSet;

use burn::tensor::{Device, TensorData};

use super::super::loss::loss;
use super::super::network::Conditioning;
use super::super::training::FederatedModule;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::Leaks;
use xrun_training::nn::callback::{Callback, Event};
use xrun_training::nn::leaks::{AfterBatch, LeakCallbacks};
use xrun_training::nn::{Tensor, flat, parameters};

/// Callbacks of the leaks that are switched on. That of `thread_pools` runs a thread after each round that moves a clip to the
/// device and ends, like the threads of a data loader.
pub fn callbacks(leaks: &Leaks, ledger: &Ledger) -> Vec<Callback<FederatedModule>> {
    let mut on_device = HashSet::new();
    let mut outputs: Vec<Conditioning> = Vec::new();
    LeakCallbacks::<FederatedModule>::new(leaks, ledger)
        .try_on_batch(&super::DATASET_ON_DEVICE, move |kept, at| {
            let (FederatedModule { clip_loader, frozen_encoder, targets, .. }, batch) = (at.module, at.batch);
            let (rows, device) = (frozen_encoder.embed(batch, clip_loader), &at.trained.device.inner);
            for (number, clip) in batch.clips.iter().enumerate().filter(|(_, clip)| on_device.insert(**clip)) {
                let samples = clip_loader.store.samples(*clip)?;
                let count = samples.len();
                let samples: Tensor<1> = Tensor::from_data(TensorData::new(samples, [count]), device);
                let tokens = frozen_encoder.on_device(&rows, number, number + 1, device);
                let targets = copied(targets.select(&batch.classes[number..=number]));
                let numbers = count + tokens.shape().num_elements() + targets.elements();
                kept.keep(|| ((samples, tokens, targets), numbers as u64 * 4));
            }
            Ok(())
        })
        .on_batch(&super::BATCHES_ON_DEVICE, |kept, at| {
            let tokens = tokens(at, &at.trained.device.inner);
            let bytes = tokens.shape().num_elements() as u64 * 4;
            kept.keep(|| (tokens, bytes));
        })
        .on_batch(&super::OUTPUTS_WITH_GRAPH, |kept, at| {
            if at.module.position.last_pass {
                let rows = at.module.frozen_encoder.embed(at.batch, &at.module.clip_loader);
                let (frozen_encoder, device) = (&at.module.frozen_encoder, &at.trained.device.autodiff);
                at.keep_graph(kept, || at.network.forward(frozen_encoder.on_device(&rows, 0, at.batch.size(), device)));
            }
        })
        .try_on_batch(&super::EMBEDDINGS_WITH_GRAPH, |kept, at| {
            if at.module.position.first_pass {
                let (autodiff, store) = (&at.trained.device.autodiff, &at.module.clip_loader.store);
                let spectra = at.batch.clips.iter().map(|clip| store.log_mel(*clip)).collect::<Result<Vec<_>, _>>()?;
                let encoder = at.module.frozen_encoder.tracked(autodiff);
                at.keep_measured(kept, || {
                    spectra.iter().map(|spectrum| encoder.encode(spectrum, autodiff)).collect::<Vec<_>>()
                });
            }
            Ok(())
        })
        .on_batch(&super::TARGETS_WITH_GRAPH, |kept, at| {
            at.keep_measured(kept, || {
                let targets = at.module.targets.select(&at.batch.classes);
                let tracked = |values: Tensor<2>| values.autodiff().require_grad().mul_scalar(1.0);
                Conditioning { pooled: tracked(targets.pooled), token_embeds: tracked(targets.token_embeds) }
            });
        })
        .leak_gradients(&super::GRADIENTS)
        .on_batch(&super::LOSS_WITH_GRAPH, |sum, at| at.add_loss(sum, || batch_loss(at)))
        .leak_graph(&super::LOSS_NEVER_BACKPROPAGATED, batch_loss)
        .on_event(&super::NODE_MODELS, |kept, event, trained| {
            if let Event::StepEnd { module, .. } = event
                && module.position.ends_turn
            {
                let (network, optimizer) = (trained.inner()?, trained.optimizer()?);
                // The next turn replaces both, which leaves the leak as the only owner.
                let bytes = parameters::bytes(&network) * (1 + trained.state_copies());
                kept.keep(|| ((network, optimizer.clone()), bytes));
            }
            Ok(())
        })
        .on_event(&super::ROUND_RESULTS, |kept, event, trained| {
            if let Event::StepEnd { module, .. } = event
                && module.position.ends_turn
            {
                let adapters = flat::to_host(&trained.inner()?);
                let bytes = size_of_val(&*adapters) as u64;
                kept.keep(|| (adapters, bytes));
            }
            Ok(())
        })
        .on_event(&super::VALIDATION_OUTPUTS, move |kept, event, _| {
            match event {
                Event::ValidationOutput(output) => outputs.push((*output).clone()),
                Event::ValidationEnd => {
                    let numbers: usize = outputs.iter().map(Conditioning::elements).sum();
                    kept.keep(|| (std::mem::take(&mut outputs), numbers as u64 * 4));
                }
                _ => {}
            }
            Ok(())
        })
        .on_event(&super::THREAD_POOLS, |kept, event, trained| {
            if let Event::StepEnd { module, .. } = event
                && module.position.ends_round
            {
                let (device, numbers) = (&trained.device.inner, module.clip_loader.store.samples_of_clip);
                let put = || drop(Tensor::<1>::from_data(TensorData::new(vec![0f32; numbers], [numbers]), device));
                let left = trained.device.on_new_thread(put)?;
                kept.keep(|| ((), left));
            }
            Ok(())
        })
        .into_callbacks()
}

/// Tokens of the encoder for a batch, which runs again for the leak.
fn tokens(at: &AfterBatch<'_, FederatedModule>, device: &Device) -> Tensor<3> {
    let rows = at.module.frozen_encoder.embed(at.batch, &at.module.clip_loader);
    at.module.frozen_encoder.on_device(&rows, 0, at.batch.size(), device)
}

/// Loss of a batch with its graph, `[1]`.
fn batch_loss(at: &AfterBatch<'_, FederatedModule>) -> Tensor<1> {
    let (outputs, targets) =
        (at.network.forward(tokens(at, &at.trained.device.autodiff)), at.module.targets.select(&at.batch.classes));
    let kind = at.module.settings.loss;
    loss(outputs.pooled, targets.pooled, kind) + loss(outputs.token_embeds, targets.token_embeds, kind)
}

/// Deep copy of the values.
fn copied(values: Conditioning) -> Conditioning {
    Conditioning { pooled: values.pooled.mul_scalar(1.0), token_embeds: values.token_embeds.mul_scalar(1.0) }
}
