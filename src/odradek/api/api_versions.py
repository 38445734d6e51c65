"""ApiVersions (key 18), versions 0-4.

v1  throttle time
v3  flexible encoding, though the answer's header is not; the client's name and version; features
v4  features whose lowest level is 0

The first request of most clients. One in a version that is not served is answered in version 0, with the versions there are.
"""

import re

from odradek.api.context import Context
from odradek.core.metadata.features import KRAFT_VERSION, supported_features
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ApiVersionsRequest, ApiVersionsResponse

KEY = 18
SOFTWARE_SINCE = 3
FEATURES_FROM_ZERO_SINCE = 4
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

Version = ApiVersionsResponse.ApiVersion


def handle(request: ApiVersionsRequest, ctx: Context) -> ApiVersionsResponse:
    if ctx.version >= SOFTWARE_SINCE:
        software = (request.client_software_name, request.client_software_version)
        if not all(SOFTWARE.fullmatch(text) for text in software):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        ctx.connection.software = software
    image = ctx.node.image
    finalized = dict(image.features)
    if kraft_version := ctx.node.controller.status().kraft_version:  # a record of the quorum's own, not one of the metadata's
        finalized[KRAFT_VERSION] = kraft_version
    return ApiVersionsResponse(
        api_keys=ctx.connection.api_versions,
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported_features(image.features).items()
            if low > 0 or ctx.version >= FEATURES_FROM_ZERO_SINCE
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.items()
        ],
    )


def advertised(keys: list[int]) -> list[Version]:
    """What is said of the APIs that are served."""
    return [
        Version(api_key=key, min_version=APIS[key].advertised[0], max_version=APIS[key].advertised[-1]) for key in sorted(keys)
    ]


def unsupported(key: int) -> ApiVersionsResponse | None:
    """The answer to a version that is not served; None when there is none, and the connection has to be closed."""
    if key != KEY:
        return None
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised([KEY]))
