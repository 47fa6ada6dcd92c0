//! Limits of memory and checkpoints: the same bits, within the limit, by counts.

mod models;

use std::sync::Arc;

use models::{MODELS, Model};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use uopc::compile::{self, Engine, RealizeOptions, frontier};
use uopc::debug::{DeviceChoice, Settings};
use uopc::ir::op::{ReduceOp, StageKind};
use uopc::ir::{DType, UOp};
use uopc::runtime::Storage;
use uopc::tensor::with_engine;
use uopc::{Error, Tensor, checkpoint, grad, hessian, jvp, memory_limit, value_and_grad, vmap};

/// An engine on the interpreter, with a pool that nobody else takes from.
fn interpreter(limit: Option<u64>) -> Arc<Engine> {
    let settings = Settings {
        device: DeviceChoice::Interp,
        memory_limit: limit,
        ..Settings::default()
    };
    Arc::new(Engine::new(settings).unwrap())
}

/// An engine on C with that many threads, which finds what others have compiled into the folder.
fn compiled(folder: &TempDir, threads: usize, limit: Option<u64>) -> Arc<Engine> {
    let settings = Settings {
        threads: Some(threads),
        memory_limit: limit,
        cache_dir: Some(folder.path().into()),
        ..Settings::default()
    };
    Arc::new(Engine::new(settings).unwrap())
}

/// The bits of tensors, computed together.
fn bits(tensors: &[Tensor]) -> Vec<Vec<u32>> {
    Tensor::realize_all(tensors).unwrap();
    let values = tensors.iter().map(|t| t.to_vec::<f32>().unwrap());
    let bits = values.map(|v| v.iter().map(|x| x.to_bits()).collect());
    bits.collect()
}

/// The loss and all gradients of a model, and the most that the engine's pool has lent meanwhile.
fn run(engine: &Arc<Engine>, model: &Model) -> (Vec<Vec<u32>>, usize) {
    let pool = engine.device().pool().clone();
    let before = pool.live_bytes();
    let found = with_engine(engine, || bits(&model.loss_and_gradients()));
    assert_eq!(before, 0, "the pool is the engine's own");
    (found, pool.peak_bytes())
}

/// The least limit that works, from the error for one that does not.
fn least(error: Error) -> u64 {
    let Error::MemoryLimit { least, .. } = error else {
        panic!("{error}");
    };
    let text = error.to_string();
    assert!(text.contains("memory limit") && text.contains(&least.to_string()));
    least as u64
}

fn least_of(folder: &TempDir, model: &Model) -> u64 {
    let engine = compiled(folder, 2, Some(1));
    let tensors = model.loss_and_gradients();
    let failed = with_engine(&engine, || Tensor::realize_all(&tensors).map(|_| ()));
    least(failed.unwrap_err())
}

#[test]
fn a_limit_changes_no_bit_and_holds() {
    let folder = TempDir::new().unwrap();
    for model in MODELS {
        let (expected, free) = run(&compiled(&folder, 2, None), model);
        let least = least_of(&folder, model);
        assert!(
            (least as usize) < free,
            "{}: {least} of {free} bytes",
            model.name
        );
        let mut last = usize::MAX;
        for part in (0..=6).rev() {
            let limit = least + (free as u64 - least) * part / 6;
            let (found, taken) = run(&compiled(&folder, 2, Some(limit)), model);
            assert!(found == expected, "{} within {limit} bytes", model.name);
            assert!(taken as u64 <= limit, "{}: {taken} of {limit}", model.name);
            // A smaller limit never takes more.
            assert!(taken <= last, "{}: {taken} after {last}", model.name);
            last = taken;
        }
        for threads in [1, 3, 4] {
            // Threads have memory of their own, so that the least depends on how many there are.
            let limit = least * 2;
            let (found, taken) = run(&compiled(&folder, threads, Some(limit)), model);
            assert!(found == expected, "{} on {threads} threads", model.name);
            assert!(taken as u64 <= limit);
        }
    }
}

#[test]
fn one_byte_less_than_the_least_is_too_little() {
    let model = &MODELS[0];
    let least = {
        let engine = interpreter(Some(1));
        let tensors = model.loss_and_gradients();
        least(with_engine(&engine, || Tensor::realize_all(&tensors)).unwrap_err())
    };
    let (_, taken) = run(&interpreter(Some(least)), model);
    assert!(taken as u64 <= least);
    let engine = interpreter(Some(least - 1));
    let tensors = model.loss_and_gradients();
    let failed = with_engine(&engine, || Tensor::realize_all(&tensors)).unwrap_err();
    assert_eq!(self::least(failed), least);
    // Nothing has changed: the same tensors can be computed under another limit.
    let engine = interpreter(Some(least));
    with_engine(&engine, || Tensor::realize_all(&tensors)).unwrap();
}

#[test]
fn limits_with_one_choice_share_a_plan() {
    let engine = interpreter(None);
    let model = &MODELS[0];
    with_engine(&engine, || {
        let run = |limit: u64| {
            let _limit = memory_limit(limit);
            bits(&model.loss_and_gradients())
        };
        run(1 << 40);
        let stats = engine.stats();
        assert_eq!((stats.plan_misses, stats.plans), (1, 1));
        run(1 << 39);
        let least = {
            let _limit = memory_limit(1);
            least(Tensor::realize_all(&model.loss_and_gradients()).unwrap_err())
        };
        let launches = engine.stats().launches;
        run(least);
        let more = engine.stats().launches - launches;
        assert!(
            more > stats.launches,
            "{more} kernels, {} without",
            stats.launches
        );
        assert_eq!(engine.stats().plan_misses, 1, "one structure, one plan");
        // Without a limit nothing is computed twice.
        let launches = engine.stats().launches;
        bits(&model.loss_and_gradients());
        assert_eq!(engine.stats().launches - launches, stats.launches);
    });
}

#[test]
fn guards_nest_and_end() {
    let engine = interpreter(None);
    let model = &MODELS[0];
    with_engine(&engine, || {
        let outer = memory_limit(1);
        let inner = memory_limit(1 << 40);
        bits(&model.loss_and_gradients());
        drop(inner);
        least(Tensor::realize_all(&model.loss_and_gradients()).unwrap_err());
        // Another thread has no limit.
        std::thread::scope(|scope| {
            scope.spawn(|| with_engine(&engine, || bits(&model.loss_and_gradients())));
        });
        let inner = memory_limit(1 << 40);
        drop(outer);
        bits(&model.loss_and_gradients());
        drop(inner);
        bits(&model.loss_and_gradients());
    });
}

#[test]
fn under_a_limit_a_loss_keeps_no_tape() {
    let gradients = |engine: &Arc<Engine>| {
        with_engine(engine, || {
            let x = Tensor::from([[0.5f32, -1.0], [2.0, 0.25]]);
            let w = Tensor::from([[1.0f32, 0.5], [-0.5, 2.0]])
                .requires_grad()
                .unwrap();
            let h = x.matmul(&w).unwrap().exp().unwrap();
            let loss = h.matmul(&w).unwrap().square().unwrap().sum(..).unwrap();
            let value = loss.item().unwrap();
            let after_loss = engine.stats().launches;
            let pool = engine.device().pool().live_bytes();
            loss.backward(&[&w]).unwrap();
            let g = w.grad().unwrap().to_vec::<f32>().unwrap();
            (
                value.to_bits(),
                g,
                engine.stats().launches - after_loss,
                pool,
            )
        })
    };
    let (value, g, launches, held) = gradients(&interpreter(None));
    let (same_value, same_g, more, less) = gradients(&interpreter(Some(1 << 30)));
    assert_eq!((value, g), (same_value, same_g));
    assert!(more > launches, "{more} kernels, {launches} with a tape");
    assert!(less < held, "{less} bytes, {held} with a tape");
}

// ---- random graphs ----

/// Numbers in slots, and graphs in which old values are read late.
fn random_graph(seed: u64) -> (Vec<UOp>, Vec<(u32, Arc<Storage>)>) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let n = rng.random_range(2..7usize) * 8;
    let mut pool: Vec<UOp> = (0..2)
        .map(|slot| UOp::slot(slot, DType::F32, n * n).reshape(&[n, n]).unwrap())
        .collect();
    let slots = (0..2).map(|slot| {
        let values: Vec<f32> = (0..n * n).map(|_| rng.random_range(-1.0..1.0)).collect();
        (slot, Storage::from_slice(&values).unwrap())
    });
    let slots = slots.collect();
    for _ in 0..rng.random_range(6..40) {
        let recent = pool.len().saturating_sub(3);
        let a = pool[rng.random_range(recent..pool.len())].clone();
        let b = pool[rng.random_range(0..pool.len())].clone();
        let turned = b.permute(&[1, 0]).unwrap();
        let value = match rng.random_range(0..6) {
            0 => a.add(&b),
            1 => a.mul(&turned),
            2 => a.maximum(&turned),
            3 => a.sin(),
            4 => {
                let rows = a
                    .reduce(ReduceOp::Add, 1)
                    .unwrap()
                    .reshape(&[n, 1])
                    .unwrap();
                rows.expand(&[n, n]).unwrap().add(&b)
            }
            _ => {
                let wide = |u: &UOp, shape: [usize; 3]| {
                    u.reshape(&shape).unwrap().expand(&[n, n, n]).unwrap()
                };
                let product = wide(&a, [n, 1, n]).mul(&wide(&turned, [1, n, n])).unwrap();
                product.reduce(ReduceOp::Add, 1)
            }
        };
        let value = value.unwrap().sin().unwrap();
        let stored = match rng.random_range(0..4) {
            0 => value,
            _ => value.stage(StageKind::Materialise).unwrap(),
        };
        pool.push(stored);
    }
    let mut roots = vec![pool[pool.len() - 1].clone()];
    if rng.random_range(0..2) == 0 {
        roots.push(pool[rng.random_range(2..pool.len())].clone());
    }
    (roots, slots)
}

/// The bits of the roots, and what the pool lent at most.
fn realize(
    roots: &[UOp],
    slots: &[(u32, Arc<Storage>)],
    limit: Option<u64>,
) -> uopc::Result<(Vec<Vec<u32>>, usize)> {
    let engine = interpreter(None);
    let options = RealizeOptions {
        slots,
        memory_limit: limit,
        ..RealizeOptions::default()
    };
    let outputs = engine.realize(roots, &options)?.outputs;
    let bits = |s: &Arc<Storage>| s.to_vec::<f32>().iter().map(|x| x.to_bits()).collect();
    let found = outputs.iter().map(bits).collect();
    Ok((found, engine.device().pool().peak_bytes()))
}

#[test]
fn random_graphs_within_random_limits() {
    let graphs = if std::env::var_os("UOPC_DEEP").is_some() {
        1000
    } else {
        60
    };
    let (mut saved, mut spread) = (0, 0);
    for seed in 0..graphs {
        let (roots, slots) = random_graph(seed);
        let (expected, free) = realize(&roots, &slots, None).unwrap();
        let least = match realize(&roots, &slots, Some(1)) {
            Err(error) => least(error),
            Ok(_) => panic!("seed {seed}: nothing fits into a byte"),
        };
        assert!(least as usize <= free, "seed {seed}");
        saved += usize::from((least as usize) < free);
        spread += free - least as usize;
        let mut rng = SmallRng::seed_from_u64(!seed);
        let random = |_| rng.random_range(least..=free as u64);
        let mut limits: Vec<u64> = (0..3).map(random).chain([least, free as u64]).collect();
        limits.sort_unstable();
        let mut last = 0;
        for limit in limits {
            let (found, taken) = realize(&roots, &slots, Some(limit)).unwrap();
            assert!(found == expected, "seed {seed} within {limit}");
            assert!(taken as u64 <= limit, "seed {seed}: {taken} of {limit}");
            assert!(
                taken >= last,
                "seed {seed}: {taken} of {limit}, {last} of less"
            );
            last = taken;
        }
        assert!(
            realize(&roots, &slots, Some(least - 1)).is_err(),
            "seed {seed}"
        );
    }
    assert!(
        saved * 2 > graphs as usize,
        "{saved} of {graphs} plans got smaller"
    );
    assert!(spread > 0);
}

// ---- what is chosen ----

#[test]
fn a_chain_is_cut_in_runs() {
    // Twenty layers, each of which its gradient reads.
    let model = Model {
        name: "chain",
        build: models::chain,
    };
    let roots: Vec<UOp> = model.loss_and_gradients().iter().map(Tensor::uop).collect();
    let lowered = compile::lower(&roots, None, &Settings::default()).unwrap();
    let front = frontier(&lowered);
    let (first, last) = (&front[0], &front[front.len() - 1]);
    for pair in front.windows(2) {
        assert!(pair[1].peak < pair[0].peak);
    }
    assert!(first.cuts.iter().all(|c| c.is_empty()));
    // Less than half of the memory for less than one more forward pass, which is a third of all.
    let half = front.iter().find(|c| 2 * c.peak <= first.peak);
    let half = half.expect("half of the memory can do");
    assert!(
        half.cost < 1.34 * first.cost,
        "{} of {}",
        half.cost,
        first.cost
    );
    assert!(
        last.peak * 3 < first.peak,
        "{} of {}",
        last.peak,
        first.peak
    );
}

#[test]
fn explain_says_what_is_computed_again() {
    let tensors = MODELS[0].loss_and_gradients();
    let roots: Vec<UOp> = tensors.iter().map(Tensor::uop).collect();
    let free = compile::lower(&roots, None, &Settings::default()).unwrap();
    let front = frontier(&free);
    let settings = Settings {
        memory_limit: Some(front[front.len() - 1].peak as u64),
        ..Settings::default()
    };
    let limited = compile::lower(&roots, None, &settings).unwrap();
    assert!(limited.plan.kernels.len() > free.plan.kernels.len());
    assert_eq!(limited.plan.kernels.len(), limited.launches.len());
    uopc::ir::verify::plan(&limited.plan).unwrap();
    let text = uopc::pass::explain::explain(&limited);
    assert!(text.contains("computed again"), "{text}");
    assert!(!uopc::pass::explain::explain(&free).contains("computed again"));
}

// ---- checkpoint ----

fn layer((w, x): &(Tensor, Tensor)) -> uopc::Result<Tensor> {
    x.matmul(w)?.sin()?.exp()?.matmul(w)
}

fn plain_step(w: &Tensor) -> uopc::Result<Tensor> {
    let x = models::numbers(&[6, 6], 3);
    let h = layer(&(w.clone(), x))?;
    let h = layer(&(w.clone(), h))?;
    layer(&(w.clone(), h))?.sin()?.square()?.mean(..)
}

fn saving_step(w: &Tensor) -> uopc::Result<Tensor> {
    let x = models::numbers(&[6, 6], 3);
    let layer = checkpoint(layer);
    let h = layer(&(w.clone(), x))?;
    let h = layer(&(w.clone(), h))?;
    layer(&(w.clone(), h))?.sin()?.square()?.mean(..)
}

/// The kernels of what computes these tensors.
fn kernels(tensors: &[Tensor]) -> usize {
    let roots: Vec<UOp> = tensors.iter().map(Tensor::uop).collect();
    let lowered = compile::lower(&roots, None, &Settings::default()).unwrap();
    lowered.plan.kernels.len()
}

#[test]
fn a_checkpoint_computes_again_and_changes_no_bit() {
    let w = models::numbers(&[6, 6], 1);
    with_engine(&interpreter(None), || {
        let both = |f: fn(&Tensor) -> uopc::Result<Tensor>| {
            let (value, gradient) = value_and_grad(f)(&w).unwrap();
            [value, gradient]
        };
        let (plain, saving) = (both(plain_step), both(saving_step));
        let (few, more) = (kernels(&plain), kernels(&saving));
        assert!(more > few, "{more} kernels, {few} without checkpoints");
        // The value alone is computed as without.
        let value = |f: fn(&Tensor) -> uopc::Result<Tensor>| kernels(&[f(&w).unwrap()]);
        assert_eq!(value(plain_step), value(saving_step));
        assert_eq!(bits(&plain), bits(&saving));
    });
}

#[test]
fn checkpoints_are_differentiated_and_mapped_like_any_function() {
    with_engine(&interpreter(None), || {
        let x = models::numbers(&[5], 2);
        let f = |x: &Tensor| x.sin()?.exp()?.square()?.sum(..);
        let saved = |x: &Tensor| checkpoint(f)(x);
        assert_eq!(
            bits(&[hessian(f)(&x).unwrap()]),
            bits(&[hessian(saved)(&x).unwrap()])
        );
        let second = |g: &dyn Fn(&Tensor) -> uopc::Result<Tensor>| {
            grad(|x: &Tensor| grad(g)(x)?.square()?.sum(..))(&x).unwrap()
        };
        assert_eq!(bits(&[second(&f)]), bits(&[second(&saved)]));
        let (y, t) = jvp(f, &x, &x).unwrap();
        let (same_y, same_t) = jvp(saved, &x, &x).unwrap();
        assert_eq!(bits(&[y, t]), bits(&[same_y, same_t]));
        let rows = models::numbers(&[3, 5], 4);
        let each = vmap(grad(f), 0, 0)(&rows).unwrap();
        let saved_each = vmap(grad(saved), 0, 0)(&rows).unwrap();
        assert_eq!(bits(&[each]), bits(&[saved_each]));
        // A checkpoint of a gradient, one inside another, and one that maps.
        let inner = checkpoint(|x: &Tensor| grad(saved)(x)?.sin());
        let outer = checkpoint(|x: &Tensor| checkpoint(&inner)(&inner(x)?));
        let nested = grad(|x: &Tensor| outer(x)?.sum(..))(&x).unwrap();
        let thrice = |x: &Tensor| grad(f)(x)?.sin();
        let flat = grad(|x: &Tensor| thrice(&thrice(x)?)?.sum(..))(&x).unwrap();
        assert_eq!(bits(&[nested]), bits(&[flat]));
        let mapped = checkpoint(|rows: &Tensor| vmap(grad(f), 0, 0)(rows));
        let by_rows = grad(|rows: &Tensor| mapped(rows)?.sum(..))(&rows).unwrap();
        let plain = grad(|rows: &Tensor| vmap(grad(f), 0, 0)(rows)?.sum(..))(&rows).unwrap();
        assert_eq!(bits(&[by_rows]), bits(&[plain]));
    });
}

#[test]
fn several_arguments_results_and_tensors_from_outside() {
    with_engine(&interpreter(None), || {
        let (a, b) = (models::numbers(&[4, 4], 5), models::numbers(&[4, 4], 6));
        let outside = models::numbers(&[4, 4], 7).exp().unwrap();
        let f = |(a, b): &(Tensor, Tensor)| {
            let h = a.matmul(b)?.sin()?.mul(&outside)?;
            Ok((h.exp()?, h.matmul(a)?))
        };
        let loss = |pair: (Tensor, Tensor)| (pair.0.matmul(&pair.1)?).square()?.sum(..);
        let args = (a, b);
        let plain = grad(|x: &(Tensor, Tensor)| loss(f(x)?))(&args).unwrap();
        let saved = grad(|x: &(Tensor, Tensor)| loss(checkpoint(f)(x)?))(&args).unwrap();
        assert_eq!(bits(&[plain.0, plain.1]), bits(&[saved.0, saved.1]));
    });
}

#[test]
fn a_product_that_leaves_a_checkpoint_is_summed_as_ever() {
    // A sum of products has one order, wherever the product was written.
    with_engine(&interpreter(None), || {
        let (a, b) = (models::numbers(&[7, 9], 8), models::numbers(&[9, 5], 9));
        let product = |(a, b): &(Tensor, Tensor)| {
            let a = a.reshape([7, 9, 1])?.expand([7, 9, 5])?;
            a.mul(&b.reshape([1, 9, 5])?.expand([7, 9, 5])?)
        };
        let args = (a, b);
        let plain = product(&args).unwrap().sum(1).unwrap();
        let saved = checkpoint(product)(&args).unwrap().sum(1).unwrap();
        assert_eq!(bits(&[plain]), bits(&[saved]));
    });
}

#[test]
fn the_tape_skips_what_is_inside_of_a_checkpoint() {
    let held = |layer: &dyn Fn(&(Tensor, Tensor)) -> uopc::Result<Tensor>| {
        let engine = interpreter(None);
        with_engine(&engine, || {
            let w = models::numbers(&[16, 16], 1).requires_grad().unwrap();
            let x = models::numbers(&[64, 16], 3);
            let h = layer(&(w.clone(), layer(&(w.clone(), x)).unwrap())).unwrap();
            let loss = h.sin().unwrap().square().unwrap().mean(..).unwrap();
            let value = loss.item().unwrap();
            let held = engine.device().pool().live_bytes();
            loss.backward(&[&w]).unwrap();
            let g = w.grad().unwrap().to_vec::<f32>().unwrap();
            (held, value.to_bits(), g)
        })
    };
    let (kept, value, g) = held(&layer);
    let (less, same_value, same_g) = held(&checkpoint(layer));
    assert_eq!((value, g), (same_value, same_g));
    assert!(less < kept, "{less} bytes, {kept} without checkpoints");
}
