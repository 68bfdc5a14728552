"""Small codes of vectors: arrays in, bytes out.

code = SpectrumCode(bytes=48).fit(moments)      # or a Whitening, or rows; no training
codes = code.encode(vectors)                    # uint8 [n, 48] that know their code: codes.decode()
code.scores(queries, codes)                     # float queries against the decoded codes
"""

from jaxwhiten.codes.code import CODES, Code, Quantizer, check_whitened, load_code, load_fitted, make_code
from jaxwhiten.codes.plain import Binary, Int8, UBinary, UInt8
from jaxwhiten.codes.spectrum import SpectrumCode

__all__ = ["CODES", "Binary", "Code", "Int8", "Quantizer", "SpectrumCode", "UBinary", "UInt8"]
__all__ += ["check_whitened", "load_code", "load_fitted", "make_code"]
