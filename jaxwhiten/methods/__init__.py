"""Other training-free methods with the interface of whitening.

Most map vectors to vectors, which are compared by cosine. Hubness reduction corrects the `similarity` of a pair.
"""

from jaxwhiten.methods.between import MAP_KINDS, CrossMoments, EncoderMap
from jaxwhiten.methods.columns import Centring, Identity, ZScore
from jaxwhiten.methods.flow import FLOW_CONFIGS, BertFlow
from jaxwhiten.methods.hubness import LocalScaling, MutualProximityGauss, SimilarityMethod
from jaxwhiten.methods.projection import AllButTheTop, RandomProjection
from jaxwhiten.methods.registry import METHODS, load_method, make_method, pair_similarity
from jaxwhiten.whitening.estimator import Method, VectorMethod
