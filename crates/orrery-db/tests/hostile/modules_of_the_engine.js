// limit: none
import('std').then(() => getContext().abort(new Error('there are modules')), () => {}); import('os').then(() => getContext().abort(new Error('there are modules')), () => {});
