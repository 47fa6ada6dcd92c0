//! From one line's operands and attributes to a node.
//!
//! Positional arguments stand behind the sources and are taken off the end; what is left are the
//! sources. Attributes are taken by name; one that is left over is an error.

use std::sync::Arc;

use smallvec::SmallVec;

use super::lex::{Token, number};
use super::{Line, Operand, Reader, Value, extent, literal};
use crate::error::{Error, Result};
use crate::ir::custom::Custom;
use crate::ir::dtype::DType;
use crate::ir::op::{BufferId, Combine, Exec, Fold, Op, ParamMode, ReduceOp, Space, StageKind};
use crate::ir::shape::Shape;
use crate::ir::uop::{Sources, UOp};

/// The node of a line.
pub(super) fn build(reader: &Reader, mut line: Line) -> Result<UOp> {
    let line = &mut line;
    let op = match line.mnemonic {
        "buffer" => Op::Buffer {
            n: line.extent("buffer 3")?,
            dtype: line.word_attribute("dtype")?,
            id: BufferId::Slot(line.number_attribute("slot")?),
        },
        "param" => Op::Param {
            n: line.extent("param 3")?,
            dtype: line.word_attribute("dtype")?,
            slot: line.number_attribute("slot")?,
            mode: line.word_attribute("mode")?,
        },
        "local" => Op::Local {
            n: line.extent("local 3")?,
            dtype: line.word_attribute("dtype")?,
            id: line.number_attribute("id")?,
            space: line.word_attribute("space")?,
        },
        "iota" => Op::Iota {
            n: line.extent("iota 3")?,
            dtype: line.word_attribute("dtype")?,
        },
        "sin" => Op::Sin(match line.operands.len() {
            2 => line.small_number("the number of quarter turns, as in sin %0, 1")?,
            _ => 0,
        }),
        "cast" => Op::Cast(line.word("cast %0, f16")?),
        "bitcast" => Op::Bitcast(line.word("bitcast %0, i32")?),
        "reshape" => Op::Reshape(line.shape("reshape %0, (2, 3)")?),
        "expand" => Op::Expand(line.shape("expand %0, (2, 3)")?),
        "permute" => Op::Permute(line.order()?),
        "shrink" => Op::Shrink(line.windows()?),
        "scatter_add" => Op::ScatterAdd(line.shape("scatter_add %0, %1, (2, 3)")?),
        "reduce" => {
            let n = line.small_number("the number of axes, as in reduce %0, ADD, 1")?;
            let op = line.word("reduce %0, ADD, 1")?;
            let fold = line.optional("fold")?;
            Op::Reduce {
                op,
                n,
                fold: fold.unwrap_or(Fold::Lanes),
            }
        }
        "scan" => Op::Scan(line.word("scan %0, ADD")?),
        "custom" => Op::Custom(Arc::new(Custom {
            name: line.name_attribute()?.into(),
            rules: None,
        })),
        "stage" => Op::Stage(line.word("stage %0, detach")?),
        "range" => Op::Range {
            id: line.number_attribute("id")?,
            exec: line.optional("exec")?.unwrap_or(Exec::Serial),
        },
        "load" => {
            if line.operands.len() != 2 {
                let message = "load takes a memory and an index, and a gate as gate=%2";
                return Err(line.cursor.error(line.mnemonic_at, message));
            }
            line.gate(reader)?;
            Op::Load
        }
        "store" => Op::Store {
            gated: line.gate(reader)?,
            combine: line.optional("combine")?.unwrap_or(Combine::Set),
        },
        "call" => Op::Call {
            name: line.name_attribute()?.into(),
            outs: line.number_attribute("outs")?,
        },
        "let" => Op::Let {
            id: line.number_attribute("id")?,
        },
        "declare" => Op::Declare(line.optional("identity")?),
        "const" => {
            let message =
                "a constant has no line; write it where it is used, or as in ; roots: 1.0";
            return Err(line.cursor.error(line.mnemonic_at, message));
        }
        other => match without_arguments(other) {
            Some(op) => op,
            None => {
                let message = format!("no op is called '{other}'");
                return Err(line.cursor.error(line.mnemonic_at, message));
            }
        },
    };
    let src = line.sources()?;
    if let Some(left) = line.attributes.first() {
        let message = format!("{} has no attribute '{}'", line.mnemonic, left.key);
        return Err(line.cursor.error(left.key_at, message));
    }
    UOp::new(op, src).map_err(|e| line.cursor.error(line.mnemonic_at, e.to_string()))
}

/// The op of a mnemonic that says everything.
fn without_arguments(mnemonic: &str) -> Option<Op> {
    Some(match mnemonic {
        "add" => Op::Add,
        "mul" => Op::Mul,
        "max" => Op::Max,
        "recip" => Op::Recip,
        "div" => Op::Div,
        "exp2" => Op::Exp2,
        "log2" => Op::Log2,
        "exp" => Op::Exp,
        "sqrt" => Op::Sqrt,
        "trunc" => Op::Trunc,
        "mulacc" => Op::MulAcc,
        "where" => Op::Where,
        "cmplt" => Op::CmpLt,
        "cmpne" => Op::CmpNe,
        "floordiv" => Op::FloorDiv,
        "floormod" => Op::FloorMod,
        "and" => Op::And,
        "or" => Op::Or,
        "xor" => Op::Xor,
        "shl" => Op::Shl,
        "shr" => Op::Shr,
        "stack" => Op::Stack,
        "index" => Op::Index,
        "argsort" => Op::ArgSort,
        "end" => Op::End,
        "sink" => Op::Sink,
        "after" => Op::After,
        "loop" => Op::Loop,
        "endloop" => Op::EndLoop,
        "if" => Op::If,
        "endif" => Op::EndIf,
        "barrier" => Op::Barrier,
        _ => return None,
    })
}

/// An argument that is written as one of a few words.
trait Choice: Sized + 'static {
    const ALL: &'static [Self];
    fn from_name(word: &str) -> Option<Self>;
    fn name(&self) -> &'static str;
}

macro_rules! choices {
    ($($type:ident)*) => { $(
        impl Choice for $type {
            const ALL: &'static [$type] = &$type::ALL;
            fn from_name(word: &str) -> Option<$type> {
                $type::from_name(word)
            }
            fn name(&self) -> &'static str {
                $type::name(*self)
            }
        }
    )* };
}

choices! { ParamMode ReduceOp Fold StageKind Exec Combine Space DType }

/// The words to choose from, for errors.
fn words<T: Choice>() -> String {
    let words: Vec<&str> = T::ALL.iter().map(Choice::name).collect();
    words.join(", ")
}

impl<'t> Line<'t> {
    // ---- positional arguments, last first ----

    fn last(&mut self, example: &str) -> Result<Operand<'t>> {
        self.operands.pop().ok_or_else(|| {
            let message = format!("{} needs an argument, as in {example}", self.mnemonic);
            self.cursor.error(self.mnemonic_at, message)
        })
    }

    fn wrong<T>(&self, operand: &Operand, what: &str, example: &str) -> Result<T> {
        let message = format!("{} needs {what} here, as in {example}", self.mnemonic);
        Err(self.cursor.error(operand.at, message))
    }

    fn extent(&mut self, example: &str) -> Result<usize> {
        let operand = self.last(example)?;
        match operand.value {
            Value::Word(word) => extent(&self.cursor, word, operand.at),
            _ => self.wrong(&operand, "a number of elements", example),
        }
    }

    fn small_number(&mut self, what: &str) -> Result<u8> {
        let operand = self.last(what)?;
        let found = match operand.value {
            Value::Word(word) => number(word),
            _ => None,
        };
        found.ok_or_else(|| {
            let message = format!("expected {what}, a number below 256");
            self.cursor.error(operand.at, message)
        })
    }

    fn word<T: Choice>(&mut self, example: &str) -> Result<T> {
        let operand = self.last(example)?;
        let found = match operand.value {
            Value::Word(word) => T::from_name(word),
            _ => None,
        };
        match found {
            Some(value) => Ok(value),
            None => self.wrong(&operand, &format!("one of {}", words::<T>()), example),
        }
    }

    fn shape(&mut self, example: &str) -> Result<Shape> {
        let operand = self.last(example)?;
        match &operand.value {
            Value::Numbers(dims) => Ok(Shape::new(dims)),
            _ => self.wrong(&operand, "a shape", example),
        }
    }

    fn order(&mut self) -> Result<std::sync::Arc<[u8]>> {
        let example = "permute %0, (1, 0)";
        let operand = self.last(example)?;
        let order: Option<SmallVec<[u8; 8]>> = match &operand.value {
            Value::Numbers(axes) => axes.iter().map(|&k| u8::try_from(k).ok()).collect(),
            _ => None,
        };
        match order {
            Some(order) => Ok(order[..].into()),
            None => self.wrong(&operand, "axes below 256", example),
        }
    }

    fn windows(&mut self) -> Result<std::sync::Arc<[(usize, usize)]>> {
        let example = "shrink %0, ((0, 2), (1, 3))";
        let operand = self.last(example)?;
        match &operand.value {
            Value::Pairs(bounds) => Ok(bounds[..].into()),
            Value::Numbers(none) if none.is_empty() => Ok([].into()),
            _ => self.wrong(&operand, "(begin, end) for each axis", example),
        }
    }

    /// The operands that are left, as nodes.
    fn sources(&mut self) -> Result<Sources> {
        let mut src = Sources::with_capacity(self.operands.len());
        for operand in self.operands.drain(..) {
            src.push(match operand.value {
                Value::Node(node) => node,
                Value::Word(word) => literal(&self.cursor, word, operand.at)?,
                Value::Numbers(_) | Value::Pairs(_) => {
                    let message = format!("{} takes no tuple here", self.mnemonic);
                    return Err(self.cursor.error(operand.at, message));
                }
            });
        }
        Ok(src)
    }

    // ---- attributes ----

    fn take(&mut self, key: &str) -> Option<super::Attribute<'t>> {
        let at = self.attributes.iter().position(|a| a.key == key)?;
        Some(self.attributes.remove(at))
    }

    fn missing(&self, key: &str) -> Error {
        let message = format!("{} needs the attribute {key}=...", self.mnemonic);
        self.cursor.error(self.mnemonic_at, message)
    }

    fn optional<T: Choice>(&mut self, key: &str) -> Result<Option<T>> {
        let Some(attribute) = self.take(key) else {
            return Ok(None);
        };
        let found = match attribute.value {
            Token::Word(word) => T::from_name(word),
            _ => None,
        };
        match found {
            Some(value) => Ok(Some(value)),
            None => {
                let message = format!("{key} is one of {}", words::<T>());
                Err(self.cursor.error(attribute.value_at, message))
            }
        }
    }

    fn word_attribute<T: Choice>(&mut self, key: &str) -> Result<T> {
        let found = self.optional(key)?;
        found.ok_or_else(|| self.missing(key))
    }

    fn number_attribute(&mut self, key: &str) -> Result<u32> {
        let attribute = self.take(key).ok_or_else(|| self.missing(key))?;
        let found = match attribute.value {
            Token::Word(word) => number(word),
            _ => None,
        };
        found.ok_or_else(|| {
            let message = format!("{key} is a number below 2^32");
            self.cursor.error(attribute.value_at, message)
        })
    }

    fn name_attribute(&mut self) -> Result<String> {
        let attribute = self.take("name").ok_or_else(|| self.missing("name"))?;
        match attribute.value {
            Token::Word(word) => Ok(word.into()),
            Token::Text(text) => Ok(text),
            _ => {
                let message = "a name is a word, or a text in quotes";
                Err(self.cursor.error(attribute.value_at, message))
            }
        }
    }

    /// Moves a gate to the end of the sources; false if there is none.
    fn gate(&mut self, reader: &Reader) -> Result<bool> {
        let Some(attribute) = self.take("gate") else {
            return Ok(false);
        };
        let at = attribute.value_at;
        let found = super::At {
            token: attribute.value,
            at,
        };
        let gate = reader.node(&self.cursor, &found)?;
        self.operands.push(Operand {
            value: Value::Node(gate),
            at,
        });
        Ok(true)
    }
}
