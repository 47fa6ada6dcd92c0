//! The op table: every operation of the language, its typed argument and one line of meaning.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::custom::Custom;
use super::dtype::DType;
use super::scalar::Scalar;
use super::shape::Shape;

/// What a node does. Arguments that are not tensors live here; tensors are the node's sources.
///
/// Two nodes with equal `Op` and identical sources are one node (hash consing), so everything
/// that distinguishes a value must be in its op or its sources.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    // ---- leaves ----
    /// A scalar constant of shape `()`.
    Const(Scalar),
    /// One-dimensional storage of `n` elements: a text slot or live memory.
    Buffer {
        /// Which storage.
        id: BufferId,
        /// Its element type.
        dtype: DType,
        /// How many elements.
        n: usize,
    },
    /// Argument `slot` of a kernel, one-dimensional with `n` elements.
    Param {
        /// Position in the kernel's argument list.
        slot: u32,
        /// Whether the kernel reads it, writes it, or both.
        mode: ParamMode,
        /// Its element type.
        dtype: DType,
        /// How many elements.
        n: usize,
    },
    /// The numbers `0, 1, ..., n-1`, of shape `(n,)` and an integer dtype.
    Iota {
        /// How many numbers.
        n: usize,
        /// Their integer dtype.
        dtype: DType,
    },

    // ---- arithmetic: elementwise, all sources of one shape ----
    /// `a + b`; integers wrap, bool is "or".
    Add,
    /// `a * b`; integers wrap, bool is "and".
    Mul,
    /// The larger of two; NaN if either is NaN, and `max(-0, +0)` is `+0`.
    Max,
    /// `1 / x`, floats only.
    Recip,
    /// `a / b` correctly rounded, floats only.
    Div,
    /// 2 to the power x.
    Exp2,
    /// Logarithm to base 2.
    Log2,
    /// e to the power x.
    Exp,
    /// Square root, correctly rounded.
    Sqrt,
    /// `sin(x + k * pi/2)` computed without adding: k = 0 is sin, 1 cos, 2 -sin, 3 -cos.
    Sin(u8),
    /// Rounds towards zero, floats only.
    Trunc,
    /// `a * b + c` rounded once.
    MulAcc,
    /// Conversion by value to another dtype.
    Cast(DType),
    /// The same bits read as a dtype of the same width (a NaN gives its canonical bits).
    Bitcast(DType),
    /// `c ? a : b` for a bool c.
    Where,
    /// `a < b`, a bool; false if either is NaN.
    CmpLt,
    /// `a != b`, a bool; true if either is NaN.
    CmpNe,
    /// Integer division rounded down; division by zero gives 0.
    FloorDiv,
    /// `a - floordiv(a, b) * b`: has the sign of b; modulo zero gives 0.
    FloorMod,
    /// Bitwise (bool: logical) and.
    And,
    /// Bitwise (bool: logical) or.
    Or,
    /// Bitwise (bool: logical) exclusive or.
    Xor,
    /// Shift left; 0 when the amount is negative or not below the width.
    Shl,
    /// Shift right, keeping the sign; an amount out of range gives 0, or -1 for negatives.
    Shr,

    // ---- movement: each element of the result is a copy of one element of the source ----
    /// The same elements in row-major order under another shape.
    Reshape(Shape),
    /// Repeats axes of extent 1; the ranks are equal.
    Expand(Shape),
    /// Axis k of the result is axis `p[k]` of the source.
    Permute(Arc<[u8]>),
    /// Keeps `begin <= i < end` of each axis.
    Shrink(Arc<[(usize, usize)]>),

    // ---- structure ----
    /// Joins sources of one shape along a new first axis.
    Stack,
    /// `x[i0, i1, ...]`: the first source indexed along its first axes by the others, integers
    /// of one dtype and one shape S; the result has shape S + the rest of x's shape. Out of
    /// range reads 0.
    Index,
    /// The transpose of `Index`: adds the rows of the first source, of shape S + the rest of the
    /// shape, into zeros of the shape, at the places along its first axes that the others name,
    /// integers of one dtype and one shape S. Rows are added in the row-major order of S; what is
    /// out of range adds nothing.
    ScatterAdd(Shape),
    /// Combines the last `n` axes, which disappear.
    Reduce {
        /// By addition, maximum or multiplication.
        op: ReduceOp,
        /// How many trailing axes.
        n: u8,
        /// The order in which a float sum is taken.
        fold: Fold,
    },
    /// Running combination along the last axis: element k combines those up to k, one after the
    /// other. f16 and bf16 are added and multiplied in f32, and each element is rounded once.
    Scan(ReduceOp),
    /// The positions, as i64, that sort the last axis in ascending order: equal elements keep their
    /// order, -0 equals +0, and NaNs, which are equal, come last.
    ArgSort,
    /// A body with gradient rules of its own.
    Custom(Arc<Custom>),

    // ---- markers: the identity, with a request ----
    /// See [`StageKind`].
    Stage(StageKind),

    // ---- loops and effects ----
    /// A loop counter from 0 to the source's value; an integer of shape `()`.
    Range {
        /// Tells loops of equal extent apart.
        id: u32,
        /// How it runs.
        exec: Exec,
    },
    /// A statement: the first source (a store) runs for every point of the ranges that follow,
    /// outermost first.
    End,
    /// Writes into a reference: `(ref, index, value)`, for [`Combine::MulAcc`]
    /// `(ref, index, a, b)`, and last a bool gate if there is one.
    Store {
        /// How the old element and the value combine.
        combine: Combine,
        /// Whether the last source is a gate; a false gate writes nothing.
        gated: bool,
    },
    /// Reads from a reference: `(ref, index[, gate])`; a false gate reads nothing and gives 0.
    Load,
    /// Scratch memory of a kernel, one-dimensional with `n` elements.
    Local {
        /// Tells scratch of equal type apart.
        id: u32,
        /// Where it lives.
        space: Space,
        /// Its element type.
        dtype: DType,
        /// How many elements.
        n: usize,
    },
    /// The root of a list: its sources in order.
    Sink,
    /// The first source's value, read after the second (a call) has run.
    After,
    /// A kernel of that name: the body (a sink), then output buffers, then input buffers.
    Call {
        /// The kernel's name.
        name: Arc<str>,
        /// How many of the buffers are outputs.
        outs: u32,
    },

    // ---- the linear program ----
    /// Opens the loop of a range.
    Loop,
    /// Closes it.
    EndLoop,
    /// Opens a block that runs if the source is true.
    If,
    /// Closes it.
    EndIf,
    /// Names a value: computed here once, read later through this node.
    Let {
        /// Position in the counter that names share.
        id: u32,
    },
    /// Declares scratch memory and sets it to the identity of the combine, if one is given.
    Declare(Option<Combine>),
    /// All threads have finished what stands before.
    Barrier,
}

/// Identity of a [`Op::Buffer`].
#[derive(Clone, Debug)]
pub enum BufferId {
    /// A numbered slot that is bound to memory when a plan runs; text never names live memory.
    Slot(u32),
    /// Memory that the node owns: two of these are never equal, whatever they hold.
    Live(Arc<LiveBuffer>),
}

/// The memory behind a live [`Op::Buffer`].
pub struct LiveBuffer {
    /// Unique in the process, in order of creation.
    pub id: u64,
    /// The storage, of a type that only the runtime knows.
    pub storage: Arc<dyn Any + Send + Sync>,
}

impl LiveBuffer {
    /// A buffer that no other one is equal to.
    pub fn new(storage: Arc<dyn Any + Send + Sync>) -> LiveBuffer {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Relaxed);
        LiveBuffer { id, storage }
    }
}

impl fmt::Debug for LiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "LiveBuffer({})", self.id)
    }
}

impl PartialEq for BufferId {
    fn eq(&self, other: &BufferId) -> bool {
        match (self, other) {
            (BufferId::Slot(a), BufferId::Slot(b)) => a == b,
            (BufferId::Live(a), BufferId::Live(b)) => a.id == b.id,
            _ => false,
        }
    }
}

impl Eq for BufferId {}

impl Hash for BufferId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            BufferId::Slot(n) => (0u8, *n as u64).hash(state),
            BufferId::Live(b) => (1u8, b.id).hash(state),
        }
    }
}

macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The word used in `.uir`.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The value that the word names.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }
    };
}

text_enum! {
    /// How a kernel uses a parameter.
    ParamMode {
        /// The value at entry; never written.
        In = "in",
        /// What earlier statements of the kernel wrote.
        Out = "out",
        /// A takeover: each element is read, then written, in one iteration.
        InOut = "inout",
    }
}

text_enum! {
    /// The combining operation of a reduction or scan.
    ReduceOp {
        /// Sum (bool: any).
        Add = "ADD",
        /// Maximum (NaN wins).
        Max = "MAX",
        /// Product (bool: all).
        Mul = "MUL",
    }
}

text_enum! {
    /// The order of a float ADD or MUL reduction over its flattened axes, part of the node so
    /// that no rewrite can change it. Other reductions do not depend on the order and are
    /// always `Lanes`.
    Fold {
        /// 16 interleaved lanes (k mod 16) in blocks of 4096; lanes by halving, blocks by a tree
        /// of neighbours (an odd last one moves up).
        Lanes = "lanes",
        /// One chain of fused multiply-adds, restarted every 4096, the partial sums added in
        /// order. The source is a product, perhaps seen through PERMUTE and RESHAPE, that is not
        /// rounded (anything else counts as multiplied by one).
        Chain = "chain",
    }
}

text_enum! {
    /// What a marker asks for.
    StageKind {
        /// Store the value in a buffer of its own.
        Materialise = "materialise",
        /// Stop gradients here; nothing at run time.
        Detach = "detach",
        /// A result of a part whose values are computed again instead of kept.
        Remat = "remat",
        /// An argument of such a part.
        RematInput = "remat_input",
        /// Store the value in scratch memory of the kernel that reads it, in one piece for each point
        /// of the axes that it shares with the kernel's result.
        Within = "within",
    }
}

impl StageKind {
    /// Whether it only says where a part begins or ends that is computed again: values and the
    /// order of sums do not depend on it.
    pub fn bounds(self) -> bool {
        matches!(self, StageKind::Remat | StageKind::RematInput)
    }
}

text_enum! {
    /// How a loop runs. The meaning is that of a serial loop; the others are permissions.
    Exec {
        /// One after the other.
        Serial = "serial",
        /// Written out.
        Unroll = "unroll",
        /// In the lanes of vector instructions.
        Vector = "vector",
        /// Shared out among threads, ended by a barrier.
        Thread = "thread",
    }
}

text_enum! {
    /// How a store combines the old element with the value.
    Combine {
        /// Replace.
        Set = "set",
        /// Add.
        Add = "add",
        /// Maximum.
        Max = "max",
        /// Multiply.
        Mul = "mul",
        /// `fma(a, b, old)`, rounded once.
        MulAcc = "mulacc",
    }
}

text_enum! {
    /// Where scratch memory lives.
    Space {
        /// Registers: small, every index known after unrolling.
        Reg = "reg",
        /// Each thread's own cache.
        Cache = "cache",
        /// Planned with the buffers; shared by the threads.
        Arena = "arena",
    }
}

impl From<ReduceOp> for Combine {
    fn from(op: ReduceOp) -> Combine {
        match op {
            ReduceOp::Add => Combine::Add,
            ReduceOp::Max => Combine::Max,
            ReduceOp::Mul => Combine::Mul,
        }
    }
}

/// What kind of thing an op is, for documentation and for printing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// No sources.
    Leaf,
    /// Elementwise.
    Arithmetic,
    /// Copies elements.
    Movement,
    /// Everything else on whole tensors.
    Structure,
    /// The identity with a request.
    Marker,
    /// Loops and effects.
    Loop,
    /// The linear program.
    Program,
}

/// One row of the op table.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The word in `.uir`.
    pub mnemonic: &'static str,
    /// Smallest and largest number of sources.
    pub arity: (usize, usize),
    /// Its group.
    pub class: Class,
    /// One line of meaning.
    pub meaning: &'static str,
}

const MANY: usize = usize::MAX;

macro_rules! op_table {
    ($(
        Op::$name:ident $(($($tuple:tt)*))? $({$($fields:tt)*})?
        => $mnemonic:literal, $lo:expr, $hi:expr, $class:ident, $meaning:literal;
    )*) => {
        /// The table itself, in the order of the enum.
        pub const OPS: &[OpInfo] = &[$(OpInfo {
            mnemonic: $mnemonic, arity: ($lo, $hi), class: Class::$class, meaning: $meaning,
        },)*];

        impl Op {
            /// The op's row in [`OPS`].
            pub const fn info(&self) -> OpInfo {
                match self { $(Op::$name { .. } => OpInfo {
                    mnemonic: $mnemonic, arity: ($lo, $hi), class: Class::$class, meaning: $meaning,
                },)* }
            }

            /// The op's position in [`OPS`].
            pub const fn number(&self) -> u8 {
                enum Number { $($name),* }
                match self { $(Op::$name { .. } => Number::$name as u8,)* }
            }
        }
    };
}

op_table! {
    Op::Const(_) => "const", 0, 0, Leaf, "a scalar constant; in text it stands inline";
    Op::Buffer { .. } => "buffer", 0, 0, Leaf, "one-dimensional storage";
    Op::Param { .. } => "param", 0, 0, Leaf, "an argument of a kernel";
    Op::Iota { .. } => "iota", 0, 0, Leaf, "0, 1, ..., n-1";
    Op::Add => "add", 2, 2, Arithmetic, "a + b";
    Op::Mul => "mul", 2, 2, Arithmetic, "a * b";
    Op::Max => "max", 2, 2, Arithmetic, "the larger; NaN wins";
    Op::Recip => "recip", 1, 1, Arithmetic, "1 / x";
    Op::Div => "div", 2, 2, Arithmetic, "a / b on floats";
    Op::Exp2 => "exp2", 1, 1, Arithmetic, "2 to the power x";
    Op::Log2 => "log2", 1, 1, Arithmetic, "logarithm to base 2";
    Op::Exp => "exp", 1, 1, Arithmetic, "e to the power x";
    Op::Sqrt => "sqrt", 1, 1, Arithmetic, "square root";
    Op::Sin(_) => "sin", 1, 1, Arithmetic, "sin(x + k quarter turns)";
    Op::Trunc => "trunc", 1, 1, Arithmetic, "rounds towards zero";
    Op::MulAcc => "mulacc", 3, 3, Arithmetic, "a * b + c rounded once";
    Op::Cast(_) => "cast", 1, 1, Arithmetic, "conversion by value";
    Op::Bitcast(_) => "bitcast", 1, 1, Arithmetic, "the same bits as another dtype";
    Op::Where => "where", 3, 3, Arithmetic, "c ? a : b";
    Op::CmpLt => "cmplt", 2, 2, Arithmetic, "a < b";
    Op::CmpNe => "cmpne", 2, 2, Arithmetic, "a != b";
    Op::FloorDiv => "floordiv", 2, 2, Arithmetic, "integer division rounded down";
    Op::FloorMod => "floormod", 2, 2, Arithmetic, "its remainder, with the sign of b";
    Op::And => "and", 2, 2, Arithmetic, "bitwise and";
    Op::Or => "or", 2, 2, Arithmetic, "bitwise or";
    Op::Xor => "xor", 2, 2, Arithmetic, "bitwise exclusive or";
    Op::Shl => "shl", 2, 2, Arithmetic, "shift left";
    Op::Shr => "shr", 2, 2, Arithmetic, "shift right, keeping the sign";
    Op::Reshape(_) => "reshape", 1, 1, Movement, "the same elements under another shape";
    Op::Expand(_) => "expand", 1, 1, Movement, "repeats axes of extent 1";
    Op::Permute(_) => "permute", 1, 1, Movement, "reorders axes";
    Op::Shrink(_) => "shrink", 1, 1, Movement, "keeps a window";
    Op::Stack => "stack", 1, MANY, Structure, "joins along a new first axis";
    Op::Index => "index", 2, MANY, Structure, "reads at given indices";
    Op::ScatterAdd(_) => "scatter_add", 2, MANY, Structure, "adds rows at integer indices into zeros";
    Op::Reduce { .. } => "reduce", 1, 1, Structure, "combines the last n axes";
    Op::Scan(_) => "scan", 1, 1, Structure, "running combination along the last axis";
    Op::ArgSort => "argsort", 1, 1, Structure, "indices that sort the last axis";
    Op::Custom(_) => "custom", 1, MANY, Structure, "a body with gradient rules of its own";
    Op::Stage(_) => "stage", 1, 1, Marker, "the identity with a request";
    Op::Range { .. } => "range", 1, 1, Loop, "a loop counter";
    Op::End => "end", 1, MANY, Loop, "a store under its loops";
    Op::Store { .. } => "store", 3, 5, Loop, "writes an element";
    Op::Load => "load", 2, 3, Loop, "reads an element";
    Op::Local { .. } => "local", 0, 0, Loop, "scratch memory";
    Op::Sink => "sink", 0, MANY, Loop, "a list, in order";
    Op::After => "after", 2, 2, Loop, "a buffer as a call left it";
    Op::Call { .. } => "call", 1, MANY, Loop, "runs a kernel";
    Op::Loop => "loop", 1, 1, Program, "opens a loop";
    Op::EndLoop => "endloop", 1, 1, Program, "closes it";
    Op::If => "if", 1, 1, Program, "opens a conditional block";
    Op::EndIf => "endif", 1, 1, Program, "closes it";
    Op::Let { .. } => "let", 1, 1, Program, "names a value";
    Op::Declare(_) => "declare", 1, 1, Program, "declares scratch memory";
    Op::Barrier => "barrier", 0, 0, Program, "waits for all threads";
}

impl Op {
    /// The word in `.uir`, also used in errors.
    pub const fn mnemonic(&self) -> &'static str {
        self.info().mnemonic
    }

    /// True if the result's element i depends on element i of each source alone.
    pub const fn is_elementwise(&self) -> bool {
        matches!(self.info().class, Class::Arithmetic)
    }

    /// True for RESHAPE, EXPAND, PERMUTE and SHRINK.
    pub const fn is_movement(&self) -> bool {
        matches!(self.info().class, Class::Movement)
    }

    /// True if swapping the two sources never changes the value.
    pub const fn is_commutative(&self) -> bool {
        matches!(
            self,
            Op::Add | Op::Mul | Op::Max | Op::CmpNe | Op::And | Op::Or | Op::Xor
        )
    }
}
