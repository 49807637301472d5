// limit: none
import('fs').then(() => getContext().abort(new Error('there are modules')), () => {});
