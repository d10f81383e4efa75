//! BPF instructions, and an assembler that knows labels.
//!
//! ```text
//! ┌ code u8 ┬ source 4 bits ┬ destination 4 bits ┬ offset i16 ┬ immediate i32 ┐
//! ```
//! The two register fields are swapped on big-endian machines.

/// One instruction, as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register. `R0` holds the result of a call or of the program. `R1` to `R5` hold a call's
/// arguments and do not survive it. `R6` to `R9` survive calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
}

/// How much a load reads; the rest of the register becomes zero.
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// When a jump is taken; all comparisons are unsigned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    Equal = 0x10,
    Greater = 0x20,
    GreaterOrEqual = 0x30,
    NotEqual = 0x50,
    Less = 0xa0,
}

/// A place that can be jumped to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

/// Collects instructions. Jumps only go forward, as the oldest verifiers require.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    /// Where each label is, once it has been placed.
    places: Vec<Option<usize>>,
}

const CLASS_LOAD_WIDE: u8 = 0x18;
const CLASS_LOAD: u8 = 0x61;
const CLASS_SWAP: u8 = 0xd4;
const CLASS_JUMP: u8 = 0x05;
const CLASS_JUMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const OF_REGISTER: u8 = 0x08;
const TO_BIG_ENDIAN: u8 = 0x08;
const ADD: u8 = 0x00;
const AND: u8 = 0x50;
const MOVE: u8 = 0xb0;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// In place of the source register: the immediate is the descriptor of a map.
const PSEUDO_MAP: u8 = 1;

impl Assembler {
    /// A new label, not placed yet.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places `label` at the next instruction.
    ///
    /// # Panics
    /// If it has been placed before.
    pub(super) fn place(&mut self, label: Label) {
        let before = self.places[label.0].replace(self.code.len());
        assert_eq!(before, None, "a label is in one place");
    }

    /// `to = *(width *)(from + offset)`
    pub(super) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.emit(CLASS_LOAD | width as u8, to, from as u8, offset, 0);
    }

    /// `to = from`
    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.emit(CLASS_ALU64 | MOVE | OF_REGISTER, to, from as u8, 0, 0);
    }

    /// `to = value`
    pub(super) fn set(&mut self, to: Register, value: i32) {
        self.emit(CLASS_ALU64 | MOVE, to, 0, 0, value);
    }

    /// `to = value`, all 64 bits of it.
    pub(super) fn set_wide(&mut self, to: Register, value: u64) {
        self.emit_wide(to, 0, value);
    }

    /// `to = ` the map with this descriptor.
    pub(super) fn set_map(&mut self, to: Register, descriptor: i32) {
        let descriptor = u64::try_from(descriptor).expect("a descriptor is not negative");
        self.emit_wide(to, PSEUDO_MAP, descriptor);
    }

    /// `to += value`
    pub(super) fn add(&mut self, to: Register, value: i32) {
        self.emit(CLASS_ALU64 | ADD, to, 0, 0, value);
    }

    /// `to &= value`
    pub(super) fn and(&mut self, to: Register, value: i32) {
        self.emit(CLASS_ALU64 | AND, to, 0, 0, value);
    }

    /// Converts a 16-bit number between network order and this machine's order.
    pub(super) fn swap16(&mut self, to: Register) {
        self.emit(CLASS_SWAP | TO_BIG_ENDIAN, to, 0, 0, 16);
    }

    /// Calls a kernel function.
    pub(super) fn call(&mut self, function: i32) {
        self.emit(CALL, Register::R0, 0, 0, function);
    }

    /// Ends the program; `R0` is its result.
    pub(super) fn exit(&mut self) {
        self.emit(EXIT, Register::R0, 0, 0, 0);
    }

    /// Jumps always.
    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(CLASS_JUMP, Register::R0, 0, 0, 0);
    }

    /// Jumps if the comparison holds for the lower 32 bits of `left` and `right`.
    pub(super) fn jump_if(&mut self, left: Register, is: Condition, right: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        let code = CLASS_JUMP32 | is as u8;
        self.emit(code, left, 0, 0, right.cast_signed());
    }

    /// Jumps if the comparison holds for all bits of `left` and `right`.
    pub(super) fn jump_if_register(
        &mut self,
        left: Register,
        is: Condition,
        right: Register,
        to: Label,
    ) {
        self.jumps.push((self.code.len(), to));
        let code = CLASS_JUMP | OF_REGISTER | is as u8;
        self.emit(code, left, right as u8, 0, 0);
    }

    /// The finished program.
    ///
    /// # Panics
    /// If a label was jumped to and never placed.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        for (from, label) in self.jumps {
            let to = self.places[label.0].expect("each label is placed");
            let distance = to.checked_sub(from + 1).expect("jumps go forward");
            self.code[from].offset = i16::try_from(distance).expect("programs are short");
        }
        self.code
    }

    fn emit_wide(&mut self, to: Register, source: u8, value: u64) {
        let [low, high] = [value & 0xffff_ffff, value >> 32]
            .map(|half| u32::try_from(half).expect("half of 64 bits").cast_signed());
        self.emit(CLASS_LOAD_WIDE, to, source, 0, low);
        self.emit(0, Register::R0, 0, 0, high);
    }

    fn emit(&mut self, code: u8, to: Register, source: u8, offset: i16, immediate: i32) {
        let to = to as u8;
        let registers = if cfg!(target_endian = "little") {
            source << 4 | to
        } else {
            to << 4 | source
        };
        self.code.push(Instruction {
            code,
            registers,
            offset,
            immediate,
        });
    }
}
