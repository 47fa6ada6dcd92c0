//! Inputs of the rules about sums of one-hot values.

use uopc::ir::op::ReduceOp;
use uopc::ir::{DType, UOp};

use super::{At, Cases, FLOATS, INTS};

pub fn put(cases: &mut Cases) {
    // 12 numbers of another slot beside 27 positions.
    let numbers = |dtype: DType| UOp::slot(7, dtype, 12).reshape(&[12, 1]).unwrap();
    let equal = |dtype: DType| {
        let positions = UOp::iota(27, dtype).unwrap().reshape(&[1, 27]).unwrap();
        let numbers = numbers(dtype).expand(&[12, 27]).unwrap();
        numbers.eq(&positions.expand(&[12, 27]).unwrap()).unwrap()
    };
    let numbers_of = [DType::I8, DType::U8, DType::I32, DType::U64];
    let chosen = |at: &At, dtype: DType, x: &UOp| {
        let zero = At { dtype: at.dtype }.c(0.0).shrink(&[(0, 1)]).unwrap();
        let zero = zero.reshape(&[1, 1]).unwrap().expand(&[12, 27]).unwrap();
        equal(dtype).where_(x, &zero).unwrap()
    };
    let over_numbers = |x: &UOp| {
        x.permute(&[1, 0])
            .unwrap()
            .reduce(ReduceOp::Add, 1)
            .unwrap()
    };
    let column = |at: &At| {
        let column = at
            .x()
            .shrink(&[(0, 12)])
            .unwrap()
            .reshape(&[12, 1])
            .unwrap();
        column.expand(&[12, 27]).unwrap()
    };
    for of in numbers_of {
        let all: Vec<DType> = INTS.into_iter().chain(FLOATS).collect();
        cases.each("onehot_read", &all, |at| {
            chosen(at, of, &at.matrix(12))
                .reduce(ReduceOp::Add, 1)
                .unwrap()
        });
        cases.each("onehot_read", &INTS, |at| {
            let hot = equal(of).cast(at.dtype).unwrap();
            (&at.matrix(12) * &hot).reduce(ReduceOp::Add, 1).unwrap()
        });
        cases.each("onehot_product_read", &FLOATS, |at| {
            let hot = equal(of).cast(at.dtype).unwrap();
            (&hot * &at.matrix(12)).reduce(ReduceOp::Add, 1).unwrap()
        });
        cases.each("onehot_add", &INTS, |at| {
            over_numbers(&chosen(at, of, &column(at)))
        });
        // How often each position is named, in floats too.
        cases.each("onehot_add", &all, |at| {
            over_numbers(&equal(of).cast(at.dtype).unwrap())
        });
        // The product of the transposed one-hot and a matrix.
        cases.each("onehot_product_add", &FLOATS, |at| {
            let hot = equal(of).cast(at.dtype).unwrap().permute(&[1, 0]).unwrap();
            let hot = hot
                .reshape(&[27, 1, 12])
                .unwrap()
                .expand(&[27, 3, 12])
                .unwrap();
            let rows = at
                .x()
                .shrink(&[(5, 41)])
                .unwrap()
                .reshape(&[1, 3, 12])
                .unwrap();
            (&hot * &rows.expand(&[27, 3, 12]).unwrap())
                .reduce(ReduceOp::Add, 1)
                .unwrap()
        });
    }
}
