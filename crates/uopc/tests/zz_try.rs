use uopc::{Tensor, compile};
use uopc::debug::Settings;
fn mlp(layers: usize, width: usize, batch: usize) -> (Tensor, Vec<Tensor>) {
    let x = Tensor::randn([batch, width]).unwrap();
    x.realize().unwrap();
    let ws: Vec<Tensor> = (0..layers).map(|_| { let w = Tensor::randn([width, width]).unwrap(); w.realize().unwrap(); w}).collect();
    let f = |ws: &Vec<Tensor>| {
        let mut h = x.clone();
        for w in ws { h = h.matmul(w)?.relu()?; }
        h.square()?.mean(..)
    };
    uopc::value_and_grad(f)(&ws).unwrap()
}
#[test]
fn fronts() {
    let (l, g) = mlp(24, 256, 4096);
    let mut roots = vec![l.uop()];
    roots.extend(g.iter().map(|t| t.uop()));
    let t = std::time::Instant::now();
    let lowered = compile::lower(&roots, None, &Settings::default()).unwrap();
    println!("lower {:?}, {} kernels", t.elapsed(), lowered.plan.kernels.len());
    let dis = Settings { disable: ["order".to_string()].into(), ..Settings::default() };
    let unordered = compile::lower(&roots, None, &dis).unwrap();
    println!("unordered {} ordered {}", uopc::pass::memory::plan_memory(&unordered.plan, &[]).peak, uopc::pass::memory::plan_memory(&lowered.plan, &[]).peak);
    let t = std::time::Instant::now();
    let f = compile::frontier(&lowered);
    println!("front {:?}", t.elapsed());
    for c in &f { println!("{:>12} {:.3} of cost {:.3} {}", c.peak, c.peak as f64 / f[0].peak as f64, c.cost / f[0].cost, c.cuts.iter().map(|c| c.len()).sum::<usize>()); }
    if std::env::var("V").is_ok() { println!("{}", uopc::pass::explain::explain(&lowered)); }
}
